// Callbacks: the way from C back to functions of the host. None unwinds through C: what they
// return or panic with is kept until the call is over.

package stasis

// #include "bridge.h"
import "C"

import (
	"io"
	"runtime/cgo"
	"unsafe"
)

// hooks holds the functions that a host gave one call, and their outcome.
type hooks struct {
	progress func(done, total uint64) error
	logits   func(position uint64, logits []float32) error
	each     func(Generated) error
	writer   io.Writer
	reader   io.Reader
	files    *modelFiles
	stored   func(StoredSession)
	late     error // of a reader that gave bytes with it

	failure    error // the first that one returned
	panicked   bool
	panicValue any
}

// user is what C hands to callbacks: C memory with the number that finds this call.
func (c *call) user() unsafe.Pointer {
	if c.self == 0 {
		c.self = cgo.NewHandle(c)
	}
	user := c.block(unsafe.Sizeof(c.self))
	*(*cgo.Handle)(user) = c.self
	return user
}

// guarded runs a function of the host for the call of `user`, and reports whether the call should
// continue. If the function made the context done, the call is cancelled before it continues.
func guarded(user unsafe.Pointer, body func(*call) error) (goOn bool) {
	c := (*(*cgo.Handle)(user)).Value().(*call)
	finished := false
	defer func() {
		if !finished {
			c.hooks.panicked, c.hooks.panicValue = true, recover()
			goOn = false
		}
	}()
	err := body(c)
	finished = true
	if err != nil && c.hooks.failure == nil {
		c.hooks.failure = err
	}
	if c.ctx.Err() != nil {
		C.stasis_cancel_request(c.cancel)
	}
	return err == nil
}

func answer(goOn bool) C.int32_t {
	if goOn {
		return 0
	}
	return 1
}

//export goProgress
func goProgress(user unsafe.Pointer, done, total C.uint64_t) C.int32_t {
	return answer(guarded(user, func(c *call) error {
		return c.hooks.progress(uint64(done), uint64(total))
	}))
}

//export goLogits
func goLogits(user unsafe.Pointer, position C.uint64_t, logits *C.float, count C.size_t) C.int32_t {
	return answer(guarded(user, func(c *call) error {
		row := unsafe.Slice((*float32)(unsafe.Pointer(logits)), int(count))
		return c.hooks.logits(uint64(position), row)
	}))
}

//export goGenerated
func goGenerated(user unsafe.Pointer, generated *C.stasis_generated) C.int32_t {
	return answer(guarded(user, func(c *call) error {
		return c.hooks.each(generatedOf(generated))
	}))
}

//export goWrite
func goWrite(user, data unsafe.Pointer, size C.size_t) C.int32_t {
	return answer(guarded(user, func(c *call) error {
		bytes := unsafe.Slice((*byte)(data), int(size))
		count, err := c.hooks.writer.Write(bytes)
		if err == nil && count != len(bytes) {
			err = io.ErrShortWrite
		}
		return err
	}))
}

//export goRead
func goRead(user, data unsafe.Pointer, size C.size_t) (count C.int64_t) {
	if !guarded(user, func(c *call) error {
		if err := c.ctx.Err(); err != nil {
			return err // not every call that reads has a cancel handle
		}
		got, err := c.hooks.read(unsafe.Slice((*byte)(data), int(size)))
		count = C.int64_t(got)
		return err
	}) {
		return -1
	}
	return count
}

// read waits for at least one byte; 0 without an error is the end.
func (h *hooks) read(into []byte) (int, error) {
	const attemptsMax = 100 // as package io has it
	for attempt := 0; h.late == nil; attempt++ {
		count, err := h.reader.Read(into)
		if err == nil && count == 0 && attempt == attemptsMax {
			err = io.ErrNoProgress
		}
		h.late = err
		if count > 0 {
			return count, nil
		}
	}
	if h.late == io.EOF {
		return 0, nil
	}
	return 0, h.late
}
