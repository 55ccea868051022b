// Handles: a C object, and who is using it just now.

package stasis

import (
	"os"
	"sync"
	"unsafe"
)

// A handle owns a C object. Calls take it and give it back; the last one that leaves after close
// frees it, so that an object is never freed under a call. The library decides whether calls may
// overlap.
type handle struct {
	mutex   sync.Mutex
	pointer unsafe.Pointer // nil: closed, or never opened
	users   int
	free    func(unsafe.Pointer)
	freeing unsafe.Pointer // of a closed handle that is still in use
	backend *hostBackend   // of a store over functions of the host; nil: no such store
}

func (h *handle) take(op string) (unsafe.Pointer, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.pointer == nil {
		return nil, &Error{Op: op, Status: ErrInvalidArgument, Cause: os.ErrClosed}
	}
	h.users++
	return h.pointer, nil
}

func (h *handle) giveBack() {
	h.mutex.Lock()
	h.users--
	h.freeUnused()
}

func (h *handle) close() {
	h.mutex.Lock()
	if h.pointer != nil {
		h.freeing, h.pointer = h.pointer, nil
	}
	h.freeUnused()
}

// freeUnused unlocks the mutex: freeing may take its time.
func (h *handle) freeUnused() {
	var last unsafe.Pointer
	if h.users == 0 {
		last, h.freeing = h.freeing, nil
	}
	h.mutex.Unlock()
	if last != nil {
		h.free(last)
	}
}
