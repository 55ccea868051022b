// Errors: every status that a host can meet, found by errors.Is and errors.As, with its message.

package stasis_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

// A row tests one status. Not tested: NO_MEMORY, INTERNAL, BUFFER_TOO_SMALL (which the binding
// handles itself).
type row struct {
	status stasis.Status
	name   string
	err    func() error
}

func TestEveryStatus(t *testing.T) {
	for _, row := range append(rowsOfArguments(t), rowsOfRuns(t)...) {
		err := row.err()
		refused(t, err, row.status, row.name)
		equal(t, row.status.Error(), row.name)
		var whole *stasis.Error
		equal(t, errors.As(err, &whole), true)
		equal(t, whole.Status, row.status)
		equal(t, strings.HasPrefix(err.Error(), "stasis: "+whole.Op+": "+row.name), true)
		for other := stasis.Status(0); other < 20; other++ {
			equal(t, errors.Is(err, other), other == row.status)
		}
	}
	equal(t, stasis.Status(-1).Error(), "UNKNOWN")
}

// rowsOfArguments are about what calls and files ask for.
func rowsOfArguments(t *testing.T) []row {
	m := model(t, plain)
	session := sessionOf(t, m, someTokens(10, 1))
	return []row{
		{stasis.ErrInvalidArgument, "INVALID_ARGUMENT", func() error {
			return session.Append(background, []stasis.Token{1, 100000}, nil)
		}},
		{stasis.ErrNotFound, "NOT_FOUND", func() error {
			_, err := private(t, m).Decode()
			return err
		}},
		{stasis.ErrIO, "IO", func() error {
			return session.Save(background, filepath.Join(t.TempDir(), "no", "folder"), nil)
		}},
		{stasis.ErrUnsupported, "UNSUPPORTED", func() error {
			_, err := session.Text(0, 1)
			return err
		}},
		{stasis.ErrCorrupt, "CORRUPT", func() error {
			_, err := stasis.OpenSnapshot("status_test.go")
			return err
		}},
		{stasis.ErrVersion, "VERSION", func() error {
			_, err := m.Load(background, "testdata/version.stasis", nil)
			return err
		}},
		{stasis.ErrModelMismatch, "MODEL_MISMATCH", func() error {
			_, err := model(t, tiny).Load(background, saved(t, m, someTokens(3, 1)), nil)
			return err
		}},
		{stasis.ErrConflict, "CONFLICT", func() error {
			return session.Save(background, saved(t, m, someTokens(3, 1)),
				&stasis.SaveOptions{IfMatch: true})
		}},
		{stasis.ErrFull, "FULL", func() error {
			small := must(m.NewSession(&stasis.SessionOptions{Capacity: 5}))(t)
			defer small.Close()
			return small.Append(background, someTokens(6, 1), nil)
		}},
	}
}

// rowsOfRuns are about what happens on the way.
func rowsOfRuns(t *testing.T) []row {
	m := model(t, plain)
	session := sessionOf(t, m, someTokens(10, 1))
	return []row{
		{stasis.ErrBusy, "BUSY", func() (inner error) {
			ok(t, session.Append(background, someTokens(1, 1), &stasis.RunOptions{
				Progress: func(uint64, uint64) error {
					_, inner = session.Info()
					return nil
				}}))
			return inner
		}},
		{stasis.ErrCancelled, "CANCELLED", func() error {
			return session.Append(done(), someTokens(1, 1), nil)
		}},
		{stasis.ErrDiverged, "DIVERGED", func() error {
			snapshot := must(stasis.OpenSnapshot("testdata/diverged.stasis"))(t)
			defer snapshot.Close()
			_, err := snapshot.Verify(background, model(t, llama), nil)
			return err
		}},
		{stasis.ErrDevice, "DEVICE", func() error {
			_, err := stasis.Open(background, data+plain, &stasis.ModelOptions{Device: "abacus"})
			return err
		}},
		{stasis.ErrStopped, "STOPPED", func() error {
			_, err := session.Generate(background, nil, func(stasis.Generated) error {
				return stasis.ErrStopped
			})
			return err
		}},
		{stasis.ErrNonfinite, "NONFINITE", func() error {
			_, err := stasis.Open(background, altered(t, plain, "model.safetensors",
				func(bytes []byte) []byte {
					bytes[len(bytes)-1] = 0x7f // the last bf16 becomes a NaN
					bytes[len(bytes)-2] = 0xff
					return bytes
				}), nil)
			return err
		}},
		{stasis.ErrPoolExhausted, "POOL_EXHAUSTED", func() error {
			small := must(stasis.Open(background, data+plain,
				&stasis.ModelOptions{KVBudget: 1 << 16}))(t)
			defer small.Close()
			session := private(t, small)
			return session.Append(background, someTokens(1000, 1), nil)
		}},
	}
}

// A missing file is fs.ErrNotExist, whichever call opened it; no other error is, even if it is
// NOT_FOUND or about a file.
func TestFilesThatAreNotThere(t *testing.T) {
	m := model(t, plain)
	nowhere := filepath.Join(t.TempDir(), "nowhere")
	empty := t.TempDir()
	session := sessionOf(t, m, someTokens(10, 1))
	long := sessionOf(t, m, someTokens(200, 1))
	ok(t, long.Evict(10, 150))
	_, _, released := long.KV(0, 64, 128)
	for name, row := range map[string]struct {
		err    error
		absent bool
	}{
		"open":           {second(stasis.Open(background, nowhere, nil)), true},
		"open, empty":    {second(stasis.Open(background, empty, nil)), true},
		"load":           {second(m.Load(background, nowhere, nil)), true},
		"load, below":    {second(m.Load(background, nowhere+"/file", nil)), true},
		"open snapshot":  {second(stasis.OpenSnapshot(nowhere)), true},
		"compact":        {stasis.Compact(background, nowhere, nil), true},
		"quantize":       {second(stasis.Quantize(background, nowhere, nowhere+".gguf", nil)), true},
		"a folder":       {second(m.Load(background, empty, nil)), false},
		"damaged":        {second(stasis.OpenSnapshot("status_test.go")), false},
		"no logits":      {second(private(t, m).Decode()), false},
		"released":       {released, false},
		"another status": {session.Append(background, []stasis.Token{100000}, nil), false},
	} {
		if row.err == nil || errors.Is(row.err, fs.ErrNotExist) != row.absent {
			t.Errorf("%s: %v", name, row.err)
		}
	}
	if !errors.Is(second(private(t, m).Decode()), stasis.ErrNotFound) ||
		!errors.Is(released, stasis.ErrNotFound) {
		t.Error("the cases that are NOT_FOUND and no file are not NOT_FOUND")
	}
}

// second is the error of a call that also returns something.
func second[T any](_ T, err error) error {
	return err
}

func TestUseAfterClose(t *testing.T) {
	m := must(stasis.Open(background, data+plain, nil))(t)
	session := sessionOf(t, m, someTokens(5, 1))
	path := saved(t, m, someTokens(5, 1))
	snapshot := must(stasis.OpenSnapshot(path))(t)
	other := must(stasis.OpenSnapshot(path))(t)
	ok(t, m.Close())
	ok(t, m.Close())
	ok(t, session.Append(background, someTokens(5, 1), nil)) // it lives on
	ok(t, session.Close())
	ok(t, session.Close())
	ok(t, snapshot.Close())
	ok(t, snapshot.Close())
	defer other.Close()
	for name, call := range map[string]func() error{
		"info":       func() error { _, err := m.Info(); return err },
		"create":     func() error { _, err := m.NewSession(nil); return err },
		"load":       func() error { _, err := m.Load(background, path, nil); return err },
		"tokenize":   func() error { _, err := m.Tokenize("a", 0); return err },
		"append":     func() error { return session.Append(background, nil, nil) },
		"fork":       func() error { _, err := session.Fork(); return err },
		"digest":     func() error { _, err := session.Digest(); return err },
		"generate":   func() error { _, err := session.Generate(background, nil, nil); return err },
		"generation": func() error { return session.Generation(background, nil).Close() },
		"step": func() error {
			return stasis.Step(background, []stasis.StepItem{{Session: session}}, nil)
		},
		"draft": func() error {
			return sessionOf(t, model(t, plain), someTokens(1, 1)).SetDraft(m, nil)
		},
		"element":   func() error { _, err := snapshot.Element(1); return err },
		"compare":   func() error { _, err := snapshot.Compare(other); return err },
		"compare 2": func() error { _, err := other.Compare(snapshot); return err },
		"verify":    func() error { _, err := other.Verify(background, m, nil); return err },
		"zero":      func() error { return new(stasis.Session).Append(background, nil, nil) },
	} {
		err := call()
		if name == "generation" {
			ok(t, err) // it never began
			continue
		}
		if !errors.Is(err, os.ErrClosed) || !errors.Is(err, stasis.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
