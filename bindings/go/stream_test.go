// Files and streams: the same session on the other side, and errors that come back as themselves.

package stasis_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	stasis "stasis.example/stasis.git/bindings/go"
)

func TestSaveAndLoad(t *testing.T) {
	m := model(t, llama)
	path := filepath.Join(t.TempDir(), "a.stasis")
	tokens := someTokens(150, 1)
	for _, options := range []*stasis.SaveOptions{nil, {Codec: stasis.CodecZstd, Replace: true},
		{Keep: stasis.KeepNone, Replace: true}, {FullLogits: true, Replace: true}} {
		session := sessionOf(t, m, tokens[:100])
		ok(t, session.SetSampling(&stasis.Sampling{Temperature: 1, Seed: 3}))
		ok(t, session.Save(background, path, options))
		loaded := must(m.Load(background, path, nil))(t)
		equal(t, digest(t, loaded), digest(t, session))
		ok(t, session.Append(background, tokens[100:], nil))
		ok(t, loaded.Append(background, tokens[100:], nil))
		equal(t, must(loaded.Decode())(t), must(session.Decode())(t))
		equal(t, digest(t, loaded), digest(t, session))
		ok(t, loaded.Save(background, path, nil)) // a second commit
		ok(t, loaded.Close())
		again := must(m.Load(background, path, &stasis.LoadOptions{Trusted: true,
			Session: &stasis.SessionOptions{Capacity: 500}}))(t)
		equal(t, must(again.Info())(t).Capacity, 500)
		equal(t, digest(t, again), digest(t, session))
		ok(t, again.Close())
	}
	_, err := m.Load(background, path, &stasis.LoadOptions{
		Session: &stasis.SessionOptions{Capacity: 20}})
	refused(t, err, stasis.ErrFull)
}

func TestLoadMayRefuseToRecompute(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.stasis")
	session := sessionOf(t, model(t, plain), someTokens(10, 1))
	ok(t, session.Save(background, path, &stasis.SaveOptions{Keep: stasis.KeepNone}))
	_, err := model(t, plain).Load(background, path, &stasis.LoadOptions{NoRecompute: true})
	refused(t, err, stasis.ErrUnsupported)
}

func TestStreams(t *testing.T) {
	m := model(t, local)
	session := sessionOf(t, m, someTokens(150, 1))
	var stream bytes.Buffer
	ok(t, session.Write(background, &stream, nil))
	ok(t, session.Write(background, &stream, &stasis.SaveOptions{Codec: stasis.CodecZstd}))
	stream.WriteString("more")
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"whole":                    func(r io.Reader) io.Reader { return r },
		"one byte at a time":       iotest.OneByteReader,
		"the error with the bytes": iotest.DataErrReader,
		"halves":                   iotest.HalfReader,
		"nothing now and then":     func(r io.Reader) io.Reader { return &hesitant{from: r} },
	} {
		rest := bytes.NewReader(stream.Bytes())
		reader := wrap(rest)
		for i := 0; i < 2; i++ {
			loaded := must(m.Read(background, reader, nil))(t)
			equal(t, digest(t, loaded), digest(t, session))
			ok(t, loaded.Close())
		}
		if name != "the error with the bytes" { // that one reads ahead
			equal(t, rest.Len(), 4)
		}
	}
}

// hesitant reads nothing every other time, which io.Reader allows.
type hesitant struct {
	from  io.Reader
	empty bool
}

func (h *hesitant) Read(into []byte) (int, error) {
	if h.empty = !h.empty; h.empty {
		return 0, nil
	}
	return h.from.Read(into)
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// limited takes so many bytes and fails then.
type limited struct {
	left int
	err  error
}

func (l *limited) Write(from []byte) (int, error) {
	if len(from) > l.left {
		return l.left, l.err
	}
	l.left -= len(from)
	return len(from), nil
}

func TestStreamErrorsComeBack(t *testing.T) {
	m := model(t, plain)
	session := sessionOf(t, m, someTokens(100, 1))
	before := digest(t, session)
	var stream bytes.Buffer
	ok(t, session.Write(background, &stream, nil))
	broken := errors.New("broken pipe")
	for _, left := range []int{0, 100, stream.Len() - 1} {
		err := session.Write(background, &limited{left, broken}, nil)
		refused(t, err, stasis.ErrIO, "broken pipe")
		equal(t, errors.Is(err, broken), true)
		err = session.Write(background, &limited{left, nil}, nil)
		equal(t, errors.Is(err, io.ErrShortWrite), true)

		part := bytes.NewReader(stream.Bytes()[:left])
		_, err = m.Read(background, io.MultiReader(part, iotest.ErrReader(broken)), nil)
		refused(t, err, stasis.ErrIO, "broken pipe")
		equal(t, errors.Is(err, broken), true)
		part.Seek(0, io.SeekStart)
		_, err = m.Read(background, part, nil)
		refused(t, err, stasis.ErrCorrupt)
		part.Seek(0, io.SeekStart)
		_, err = stasis.ReadSnapshot(background, io.MultiReader(part, iotest.ErrReader(broken)))
		refused(t, err, stasis.ErrIO)
		equal(t, errors.Is(err, broken), true)
	}
	_, err := m.Read(background, stuck{}, nil)
	equal(t, errors.Is(err, io.ErrNoProgress), true)
	equal(t, digest(t, session), before)
	ok(t, session.Write(background, &stream, nil)) // not busy, not hurt
}

func TestFilesThatAreRefused(t *testing.T) {
	m := model(t, plain)
	path := saved(t, m, someTokens(10, 1))
	session := sessionOf(t, m, someTokens(10, 2))
	refused(t, session.Save(background, path, nil), stasis.ErrInvalidArgument)
	ok(t, session.Save(background, path, &stasis.SaveOptions{Replace: true}))
	refused(t, session.Save(background, "", nil), stasis.ErrInvalidArgument, "path is empty")
	refused(t, session.Save(background, "a\x00b", nil), stasis.ErrInvalidArgument, "path")
	_, err := m.Load(background, path+"?", nil)
	refused(t, err, stasis.ErrNotFound)
	_, err = model(t, tiny).Load(background, path, nil)
	refused(t, err, stasis.ErrModelMismatch)
	content := must(os.ReadFile(path))(t)
	content[len(content)-5] ^= 1
	ok(t, os.WriteFile(path, content, 0o600))
	_, err = m.Load(background, path, nil)
	refused(t, err, stasis.ErrCorrupt)
}
