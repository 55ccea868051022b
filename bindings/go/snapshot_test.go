// Snapshots: what files report without their model, and what is proven with it.

package stasis_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

func TestSnapshotInfo(t *testing.T) {
	session := asked(t, llama)
	generate(t, session, nil)
	path := filepath.Join(t.TempDir(), "a.stasis")
	ok(t, session.Save(background, path, &stasis.SaveOptions{Codec: stasis.CodecZstd}))
	snapshot := must(stasis.OpenSnapshot(path))(t)
	defer snapshot.Close()
	info := must(snapshot.Info())(t)
	modelInfo := must(model(t, llama).Info())(t)
	equal(t, info.Digest, digest(t, session))
	equal(t, info.Position, position(t, session))
	equal(t, info.Model, modelInfo.Model)
	equal(t, info.Contract, modelInfo.Contract)
	equal(t, info.Codec, stasis.CodecZstd)
	equal(t, info.Keep, stasis.KeepFull)
	equal(t, info.Commits, 1)
	equal(t, info.FileBytes, uint64(must(os.Stat(path))(t).Size()))
	equal(t, info.KVStoredBytes < info.KVBytes, true)
	equal(t, info.DamagedRoot, false)
	equal(t, info.Digest.String()[:2], string("0123456789abcdef"[info.Digest[0]>>4])+
		string("0123456789abcdef"[info.Digest[0]&15]))

	tokens, sources := mustBoth(session.Tokens(3))(t)
	stored, storedSources := mustBoth(snapshot.Tokens(3))(t)
	equal(t, len(stored), len(tokens))
	for i := range tokens {
		equal(t, stored[i], tokens[i])
		equal(t, storedSources[i], sources[i])
	}
	equal(t, sources[len(sources)-1], stasis.SourceSampled)
	for element := stasis.ElementKVCache; element <= stasis.ElementSources; element++ {
		equal(t, json.Valid(must(snapshot.Element(element))(t)), true)
	}
	_, err := snapshot.Element(13)
	refused(t, err, stasis.ErrInvalidArgument, "13")

	var stream bytes.Buffer
	ok(t, session.Write(background, &stream, nil))
	read := must(stasis.ReadSnapshot(background, &stream))(t)
	defer read.Close()
	equal(t, must(read.Info())(t).Digest, info.Digest)
	equal(t, must(snapshot.Compare(read))(t).Equal, true)
	_, err = snapshot.Compare(snapshot)
	if err != nil {
		refused(t, err, stasis.ErrBusy)
	}
}

func TestSnapshotCompare(t *testing.T) {
	m := model(t, llama)
	tokens := someTokens(20, 1)
	a := must(stasis.OpenSnapshot(saved(t, m, tokens)))(t)
	defer a.Close()
	tokens[7]++
	b := must(stasis.OpenSnapshot(saved(t, m, tokens)))(t)
	defer b.Close()
	difference := must(a.Compare(b))(t)
	equal(t, difference.Equal, false)
	equal(t, difference.Element, stasis.ElementTokens)
	equal(t, difference.Position, 7)
	equal(t, difference.Layer, stasis.Nowhere)
	equal(t, difference.Message != "", true)
}

func TestVerify(t *testing.T) {
	session := asked(t, llama)
	generate(t, session, nil)
	path := filepath.Join(t.TempDir(), "a.stasis")
	ok(t, session.Save(background, path, nil))
	snapshot := must(stasis.OpenSnapshot(path))(t)
	defer snapshot.Close()
	report := must(snapshot.Verify(background, model(t, llama), nil))(t)
	equal(t, report.Verified, true)
	equal(t, report.Positions, position(t, session))
	equal(t, report.Drawn > 0 && report.DrawnOtherwise == 0, true)
	equal(t, report.Position, stasis.NoPosition)
	audit := must(snapshot.Verify(background, model(t, llama),
		&stasis.VerifyOptions{AuditPercent: 100, AuditSeed: 3, Chunk: 5}))(t)
	equal(t, audit.Verified, true)
	equal(t, audit.AuditDrawn, audit.AuditPages)
	_, err := snapshot.Verify(background, model(t, plain), nil)
	refused(t, err, stasis.ErrModelMismatch)

	forged := must(stasis.OpenSnapshot("testdata/diverged.stasis"))(t)
	defer forged.Close()
	report, err = forged.Verify(background, model(t, llama), nil)
	refused(t, err, stasis.ErrDiverged)
	equal(t, report.Verified, false)
	equal(t, report.Position, 3)
	equal(t, report.Layer, 0)
	equal(t, report.Head, 1)
	equal(t, report.Part, stasis.Values)
	equal(t, report.Element, stasis.ElementKVCache)
}

func TestCompact(t *testing.T) {
	m := model(t, llama)
	session := sessionOf(t, m, someTokens(200, 1))
	path := filepath.Join(t.TempDir(), "a.stasis")
	ok(t, session.Save(background, path, nil))
	ok(t, session.Rewind(background, 70, 0, nil))
	ok(t, session.Save(background, path, nil))
	before := must(os.Stat(path))(t).Size()
	ok(t, stasis.Compact(background, path, &stasis.SaveOptions{Codec: stasis.CodecZstd}))
	equal(t, must(os.Stat(path))(t).Size() < before/2, true)
	loaded := must(m.Load(background, path, nil))(t)
	defer loaded.Close()
	equal(t, digest(t, loaded), digest(t, session))
	refused(t, stasis.Compact(background, path+"?", nil), stasis.ErrNotFound)
}
