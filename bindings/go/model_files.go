// Models from other places than paths: file systems of Go, and open files.

package stasis

// #include "bridge.h"
//
// static void close_model(void *model) { stasis_model_close(model); }
import "C"

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"runtime"
	"unsafe"
)

// OpenFS opens a model whose files are in a file system of Go: `name` is that of a GGUF file in it
// (of a split model, the first), or "" for the files of a Hugging Face directory, at its root. The
// weights are copied to memory. Files are read at offsets if they are io.ReaderAt, as those of
// os.DirFS; others, as those of archive/zip, are read as a whole when first needed. Options may be
// nil.
func OpenFS(ctx context.Context, files fs.FS, name string, options *ModelOptions) (*Model, error) {
	c := begin(ctx, "open")
	c.names = true
	c.hooks.files = &modelFiles{fsys: files, open: map[string]*modelFile{}}
	defer c.hooks.files.close()
	given := c.modelOptions(options)
	defer c.lendThreads(given, options)()
	inner := c.text("the name", name)
	source := (*C.stasis_model_source)(c.block(C.sizeof_stasis_model_source))
	source.struct_size = C.sizeof_stasis_model_source
	source.size = (*[0]byte)(C.stasis_go_file_size)
	source.read = (*[0]byte)(C.stasis_go_file_read)
	source.user = c.user()
	var opened *C.stasis_model
	err := c.run(func(failure *C.stasis_error) C.stasis_status {
		return C.stasis_model_open_source(source, inner, given, &opened, failure)
	})
	return modelOf(opened, err)
}

// OpenFile opens the GGUF file that `file` is, wherever its offset is; the file may be closed
// afterwards, and needs no name. Options may be nil.
func OpenFile(ctx context.Context, file *os.File, options *ModelOptions) (*Model, error) {
	c := begin(ctx, "open")
	given := c.modelOptions(options)
	defer c.lendThreads(given, options)()
	var opened *C.stasis_model
	err := c.run(func(failure *C.stasis_error) C.stasis_status {
		return C.stasis_model_open_descriptor(C.int32_t(file.Fd()), given, &opened, failure)
	})
	runtime.KeepAlive(file)
	return modelOf(opened, err)
}

// lendThreads keeps the pool of the options from being freed until the function that it returns is
// called.
func (c *call) lendThreads(given *C.stasis_model_options, options *ModelOptions) func() {
	if options == nil || options.ThreadPool == nil {
		return func() {}
	}
	pool, err := options.ThreadPool.take(c.op)
	if err != nil {
		c.refuse(err)
		return func() {}
	}
	given.thread_pool = (*C.stasis_threads)(pool)
	return options.ThreadPool.giveBack
}

func modelOf(opened *C.stasis_model, err error) (*Model, error) {
	if err != nil {
		return nil, err
	}
	model := &Model{handle{pointer: unsafe.Pointer(opened),
		free: func(model unsafe.Pointer) { C.close_model(model) }}}
	runtime.SetFinalizer(model, (*Model).Close)
	return model, nil
}

// The files of a model that is being opened, by their names.
type modelFiles struct {
	fsys fs.FS
	open map[string]*modelFile
}

type modelFile struct {
	at   io.ReaderAt
	size int64
	file fs.File // nil: it is in memory
}

// find opens a file when it is first needed; nil: there is none of this name.
func (m *modelFiles) find(name string) (*modelFile, error) {
	if known, ok := m.open[name]; ok {
		return known, nil
	}
	file, err := m.fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		m.open[name] = nil
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := &modelFile{file: file}
	at, random := file.(io.ReaderAt)
	if random {
		var info fs.FileInfo
		if info, err = file.Stat(); err == nil {
			found.at, found.size = at, info.Size()
		}
	} else {
		var all []byte
		all, err = io.ReadAll(file)
		found.at, found.size, found.file = bytes.NewReader(all), int64(len(all)), nil
	}
	if err != nil || !random {
		file.Close()
	}
	if err != nil {
		return nil, err
	}
	m.open[name] = found
	return found, nil
}

func (m *modelFiles) close() {
	for _, file := range m.open {
		if file != nil && file.file != nil {
			file.file.Close()
		}
	}
}

//export goFileSize
func goFileSize(user unsafe.Pointer, name *C.char) (size C.int64_t) {
	if !guarded(user, func(c *call) error {
		file, err := c.hooks.files.find(C.GoString(name))
		if err != nil {
			return err
		}
		size = -1
		if file != nil {
			size = C.int64_t(file.size)
		}
		return nil
	}) {
		return -2
	}
	return size
}

//export goFileRead
func goFileRead(user unsafe.Pointer, name *C.char, offset C.uint64_t, data unsafe.Pointer,
	size C.size_t) (count C.int64_t) {
	if !guarded(user, func(c *call) error {
		file, err := c.hooks.files.find(C.GoString(name))
		if err != nil {
			return err
		}
		got, err := file.at.ReadAt(unsafe.Slice((*byte)(data), int(size)), int64(offset))
		count = C.int64_t(got)
		if got > 0 || errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}) {
		return -2
	}
	return count
}
