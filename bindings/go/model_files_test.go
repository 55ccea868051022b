// Models from file systems of Go and from open files.

package stasis_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

func digestOfAppend(t *testing.T, m *stasis.Model) stasis.Digest {
	t.Helper()
	session := private(t, m)
	ok(t, session.Append(background, someTokens(90, 1), nil))
	return must(session.Digest())(t)
}

// same checks that a model is that of a path.
func same(t *testing.T, m *stasis.Model, name string) {
	t.Helper()
	defer m.Close()
	equal(t, must(m.Info())(t).Model, must(model(t, name).Info())(t).Model)
	equal(t, digestOfAppend(t, m), digestOfAppend(t, model(t, name)))
}

func TestOpenFS(t *testing.T) {
	same(t, must(stasis.OpenFS(background, os.DirFS(data+gemma), "", nil))(t), gemma)
	var packed bytes.Buffer
	writer := zip.NewWriter(&packed)
	ok(t, filepath.WalkDir(data+gemma, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		to, err := writer.Create(entry.Name())
		if err == nil {
			_, err = to.Write(must(os.ReadFile(path))(t))
		}
		return err
	}))
	ok(t, writer.Close())
	archive := must(zip.NewReader(bytes.NewReader(packed.Bytes()), int64(packed.Len())))(t)
	threads := must(stasis.NewThreads(nil))(t)
	defer threads.Close()
	options := stasis.ModelOptions{ThreadPool: threads}
	same(t, must(stasis.OpenFS(background, archive, "", &options))(t), gemma)
}

var errBroken = errors.New("a broken disk")

// broken fails for one of the files.
type broken struct {
	fs.FS
	name string
}

func (b broken) Open(name string) (fs.File, error) {
	if name == b.name {
		return nil, errBroken
	}
	return b.FS.Open(name)
}

func TestOpenFSRefused(t *testing.T) {
	for _, name := range []string{"config.json", "model.safetensors", "tokenizer.model"} {
		_, err := stasis.OpenFS(background, broken{os.DirFS(data + gemma), name}, "", nil)
		refused(t, err, stasis.ErrIO, name)
		equal(t, errors.Is(err, errBroken), true)
	}
	_, err := stasis.OpenFS(background, os.DirFS(data+gemma), "none.gguf", nil)
	refused(t, err, stasis.ErrNotFound, "none.gguf")
	equal(t, errors.Is(err, fs.ErrNotExist), true)
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err = stasis.OpenFS(ctx, os.DirFS(data+gemma), "", nil)
	refused(t, err, stasis.ErrCancelled)
}

func TestOpenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	must(stasis.Quantize(background, data+gemma, path, nil))(t)
	byPath := must(stasis.Open(background, path, nil))(t)
	defer byPath.Close()
	file := must(os.Open(path))(t)
	m := must(stasis.OpenFile(background, file, nil))(t)
	defer m.Close()
	ok(t, file.Close())
	ok(t, os.Remove(path))
	equal(t, digestOfAppend(t, m), digestOfAppend(t, byPath))
	_, err := stasis.OpenFile(background, file, nil)
	refused(t, err, stasis.ErrInvalidArgument)
}
