// Calls: what one call of the C library needs beside its arguments.

package stasis

// #include <stdlib.h>
// #include <stasis.h>
import "C"

import (
	"context"
	"fmt"
	"math"
	"runtime/cgo"
	"strings"
	"time"
	"unsafe"
)

// A call lends the library C memory for nested arguments (C must not see a Go pointer inside
// memory that it is given), a cancel handle that follows a context, and the host's functions.
// begin, then arguments and options from its methods, then run, exactly once.
type call struct {
	op      string
	ctx     context.Context
	cancel  *C.stasis_cancel // nil: the context cannot be done
	blocks  []unsafe.Pointer // C memory, freed at the end
	self    cgo.Handle       // for callbacks; 0: no callbacks
	refused error            // an argument that cannot be passed to C
	names   bool             // it was given the name of a file
	lends   bool             // the cancel handle outlives it

	hooks hooks

	backend         *hostBackend // that it may call; nil: none
	backendFailures map[string]backendFailure
}

func begin(ctx context.Context, op string) *call {
	c := &call{op: op, ctx: ctx}
	if ctx.Done() != nil {
		var failure C.stasis_error
		c.refuse(c.verdict(C.stasis_cancel_create(&c.cancel, &failure), &failure))
	}
	return c
}

// brief begins a call that cannot be cancelled.
func brief(op string) *call {
	return begin(context.Background(), op)
}

// run makes the call and ends it. Repanics with the value of a callback that panicked.
func (c *call) run(body func(failure *C.stasis_error) C.stasis_status) error {
	var failure C.stasis_error
	err := c.refused
	if err == nil && c.ctx.Err() != nil {
		err = &Error{Op: c.op, Status: ErrCancelled, Cause: c.ctx.Err()}
	}
	if err == nil {
		settle := c.follow()
		status := body(&failure)
		settle()
		err = c.verdict(status, &failure)
	}
	if !c.lends {
		C.stasis_cancel_release(c.cancel)
	}
	for _, block := range c.blocks {
		C.free(block)
	}
	if c.self != 0 {
		c.self.Delete()
	}
	if c.hooks.panicked {
		panic(c.hooks.panicValue)
	}
	return err
}

// use runs a call on an object that is kept from being freed meanwhile.
func (h *handle) use(c *call,
	body func(object unsafe.Pointer, failure *C.stasis_error) C.stasis_status) error {
	object, err := h.take(c.op)
	if err != nil {
		c.refuse(err)
		return c.run(nil)
	}
	defer h.giveBack()
	if h.backend != nil {
		defer h.backend.serve(c)()
	}
	return c.run(func(failure *C.stasis_error) C.stasis_status { return body(object, failure) })
}

// follow requests cancellation when the context is done, until settled.
func (c *call) follow() (settle func()) {
	if c.cancel == nil {
		return func() {}
	}
	over, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-c.ctx.Done():
			C.stasis_cancel_request(c.cancel)
		case <-over:
		}
	}()
	return func() {
		close(over)
		<-gone
	}
}

// verdict returns what C returned as an error, with the cause that the host itself gave.
func (c *call) verdict(status C.stasis_status, failure *C.stasis_error) error {
	if status == C.STASIS_OK {
		return nil
	}
	err := &Error{Op: c.op, Status: Status(status), Message: C.GoString(&failure.message[0]),
		names: c.names}
	if err.Status == ErrIO && c.hooks.failure != nil && c.hooks.failure == c.ctx.Err() {
		err.Status = ErrCancelled // goRead saw it first
	}
	if err.Status == ErrCancelled {
		err.Cause = c.ctx.Err()
	} else if err.Status == ErrStopped || err.Status == ErrIO {
		err.Cause = c.hooks.failure
	}
	if c.backend != nil && err.Cause == nil {
		err.Cause = c.backend.blame(c, err.Message)
	}
	return err
}

// refuse keeps the first error.
func (c *call) refuse(err error) {
	if c.refused == nil {
		c.refused = err
	}
}

// block is zeroed C memory. A Go program out of memory ends, and so does this one.
func (c *call) block(size uintptr) unsafe.Pointer {
	memory := C.calloc(1, C.size_t(size))
	if memory == nil {
		panic("stasis: the C heap is out of memory")
	}
	c.blocks = append(c.blocks, memory)
	return memory
}

// text is a zero-terminated copy; nil if the text is empty. A zero inside would end it early.
func (c *call) text(name, value string) *C.char {
	if strings.IndexByte(value, 0) >= 0 {
		c.refuse(&Error{Op: c.op, Status: ErrInvalidArgument, Message: name + " holds a zero byte"})
	}
	if value == "" {
		return nil
	}
	return (*C.char)(unsafe.Pointer(&array(c, []byte(value+"\x00"))[0]))
}

// array is a copy in C memory, for structs that point to it.
func array[T any](c *call, values []T) []T {
	if len(values) == 0 {
		return nil
	}
	memory := c.block(uintptr(len(values)) * unsafe.Sizeof(values[0]))
	copied := unsafe.Slice((*T)(memory), len(values))
	copy(copied, values)
	return copied
}

// first is the address of a slice's elements; nil if it has none.
func first[T any](values []T) *T {
	if len(values) == 0 {
		return nil
	}
	return &values[0]
}

// milliseconds is a timeout, at least 1 unless it is 0, which is none.
func (c *call) milliseconds(timeout time.Duration) C.uint64_t {
	if timeout < 0 {
		c.refuse(&Error{Op: c.op, Status: ErrInvalidArgument,
			Message: fmt.Sprintf("Timeout is %v: expected 0 or more", timeout)})
	}
	if timeout > 0 && timeout < time.Millisecond {
		return 1
	}
	return C.uint64_t(timeout.Milliseconds())
}

// count is a number that C keeps in 32 bits.
func (c *call) count(name string, value int) C.uint32_t {
	if value < 0 || value > math.MaxUint32 {
		c.refuse(&Error{Op: c.op, Status: ErrInvalidArgument,
			Message: fmt.Sprintf("%s is %d: expected 0 to %d", name, value, uint32(math.MaxUint32))})
	}
	return C.uint32_t(value)
}
