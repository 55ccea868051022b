// Backends of stores that a host brings: Go's functions as the library's table of them.

package stasis

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/cgo"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// A Backend is a table of keys and bytes that a store is kept in: see NewStore. Objects
// ("objects/...") are put once and never changed; roots ("roots/...") are replaced. What a method
// has written when it returns must survive.
//
// Methods are called in any goroutine, several at once, until the store and what was got from it
// are closed; they must not use the store. A missing key is ErrNotFound or fs.ErrNotExist. Any
// other error ends the call of the store with ErrIO and is found by errors.Is, but for ErrCancelled
// and context.Canceled, and ErrTimeout, which end it as themselves. A panic ends the call and
// continues in its caller. A backend may have two more methods:
//
//	// Lock takes a lock, shared by all writers, or with collect a collector's alone. Without locks,
//	// ages decide what a collection may remove.
//	Lock(collect bool) (unlock func(), err error)
//	// Release is called once, after the last use.
//	Release()
type Backend interface {
	// Size gives an object's bytes.
	Size(key string) (int64, error)
	// Read fills the slice with an object's bytes from the offset on; an empty slice asks whether
	// the object is there. ErrNotFound too where it ends before that.
	Read(key string, offset int64, into []byte) error
	// Put puts an object if there is none of this key; if there is, its age begins anew. Nobody
	// ever sees a part of it. The slice lives until it returns.
	Put(key string, data []byte) error
	// GetRoot gives a root and its mark, a text of 1 to 127 bytes that no other bytes under this
	// key ever have.
	GetRoot(key string) (data []byte, mark string, err error)
	// Swap puts a root in place of the one that has the mark, or with "" of none, at once or not at
	// all, and gives the new mark. With data nil it is removed. ErrConflict: another is there, or
	// none. The slice lives until it returns.
	Swap(key, mark string, data []byte) (newMark string, err error)
	// List calls a function for each key that begins with the prefix, ascending, with its bytes and
	// its age, until that returns false. The function may call the other methods.
	List(prefix string, visit func(key string, bytes int64, age time.Duration) bool) error
	// Remove removes an object; it may be gone already.
	Remove(key string) error
}

type locker interface {
	Lock(collect bool) (unlock func(), err error)
}

// A hostBackend is known to C by its number until C has released it.
type hostBackend struct {
	backend Backend
	mutex   sync.Mutex
	running map[*call]bool
	locks   map[unsafe.Pointer]func()
}

// A failed method's outcome, by which the call that it ended finds it.
type backendFailure struct {
	err        error
	panicked   bool
	panicValue any
}

// NewStore opens a store over a host's backend. The name is for messages, and tells backends apart:
// a session that was put to or got from a store knows it by its name.
func NewStore(backend Backend, name string) (*Store, error) {
	c := brief("open store")
	own := c.name(name)
	held := &hostBackend{backend: backend, running: map[*call]bool{},
		locks: map[unsafe.Pointer]func(){}}
	user := C.calloc(1, C.size_t(unsafe.Sizeof(cgo.Handle(0))))
	if user == nil {
		panic("stasis: the C heap is out of memory")
	}
	*(*cgo.Handle)(user) = cgo.NewHandle(held)
	_, locks := backend.(locker)
	table := C.stasis_go_backend(user, answer(!locks))
	var opened *C.stasis_store
	err := c.run(func(failure *C.stasis_error) C.stasis_status {
		return C.stasis_store_open_backend(&table, own, nil, &opened, failure)
	})
	if err != nil {
		forget(user)
		return nil, err
	}
	return newStore(opened, held), nil
}

func forget(user unsafe.Pointer) {
	(*(*cgo.Handle)(user)).Delete()
	C.free(user)
}

// serve notes that a call is running until the function that it returns is called.
func (b *hostBackend) serve(c *call) func() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.running[c] = true
	c.backend, c.backendFailures = b, map[string]backendFailure{}
	return func() {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		delete(b.running, c)
	}
}

// blame finds what the library's message speaks of. The methods cannot know whose call they serve.
func (b *hostBackend) blame(c *call, message string) error {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for what, failure := range c.backendFailures {
		if strings.Contains(message, "the backend's "+what+" ") {
			if failure.panicked {
				c.hooks.panicked, c.hooks.panicValue = true, failure.panicValue
			}
			return failure.err
		}
	}
	return nil
}

// asked runs a method of the backend for the library. What it fails with is kept for the calls that
// are running.
func asked(user unsafe.Pointer, function string, key *C.char,
	body func(b *hostBackend, key string) error) (status C.stasis_status) {
	b := (*(*cgo.Handle)(user)).Value().(*hostBackend)
	own := C.GoString(key)
	finished := false
	defer func() {
		if !finished {
			b.keep(function+" of "+own, backendFailure{panicked: true, panicValue: recover()})
			status = C.STASIS_IO
		}
	}()
	err := body(b, own)
	finished = true
	mayMiss := function == "size" || function == "read" || function == "get_root"
	switch {
	case err == nil:
		return C.STASIS_OK
	case mayMiss && (errors.Is(err, ErrNotFound) || errors.Is(err, fs.ErrNotExist)):
		return C.STASIS_NOT_FOUND
	case function == "swap" && errors.Is(err, ErrConflict):
		return C.STASIS_CONFLICT
	}
	b.keep(function+" of "+own, backendFailure{err: err})
	if errors.Is(err, ErrCancelled) || errors.Is(err, context.Canceled) {
		return C.STASIS_CANCELLED
	} else if errors.Is(err, ErrTimeout) {
		return C.STASIS_TIMEOUT
	}
	return C.STASIS_IO
}

func (b *hostBackend) keep(what string, failure backendFailure) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for c := range b.running {
		c.backendFailures[what] = failure
	}
}

//export goBackendSize
func goBackendSize(user unsafe.Pointer, key *C.char, to *C.uint64_t) C.stasis_status {
	return asked(user, "size", key, func(b *hostBackend, key string) error {
		size, err := b.backend.Size(key)
		if err == nil && size < 0 {
			return fmt.Errorf("Size returned %d", size)
		}
		*to = C.uint64_t(size)
		return err
	})
}

//export goBackendRead
func goBackendRead(user unsafe.Pointer, key *C.char, offset C.uint64_t, data unsafe.Pointer,
	length C.size_t) C.stasis_status {
	return asked(user, "read", key, func(b *hostBackend, key string) error {
		return b.backend.Read(key, int64(offset), bytesOf(data, length))
	})
}

//export goBackendPut
func goBackendPut(user unsafe.Pointer, key *C.char, data unsafe.Pointer,
	length C.size_t) C.stasis_status {
	return asked(user, "put", key, func(b *hostBackend, key string) error {
		return b.backend.Put(key, bytesOf(data, length))
	})
}

//export goBackendGetRoot
func goBackendGetRoot(user unsafe.Pointer, key *C.char, data unsafe.Pointer, capacity C.size_t,
	length *C.size_t, mark *C.char) C.stasis_status {
	return asked(user, "get_root", key, func(b *hostBackend, key string) error {
		root, own, err := b.backend.GetRoot(key)
		if err != nil {
			return err
		}
		*length = C.size_t(len(root))
		if *length > capacity {
			return nil
		}
		copy(bytesOf(data, capacity), root)
		return writeMark(mark, own)
	})
}

//export goBackendSwap
func goBackendSwap(user unsafe.Pointer, key, mark *C.char, data unsafe.Pointer, length C.size_t,
	newMark *C.char) C.stasis_status {
	return asked(user, "swap", key, func(b *hostBackend, key string) error {
		if data == nil {
			_, err := b.backend.Swap(key, C.GoString(mark), nil)
			return err
		}
		made, err := b.backend.Swap(key, C.GoString(mark), bytesOf(data, length))
		if err != nil {
			return err
		}
		return writeMark(newMark, made)
	})
}

//export goBackendList
func goBackendList(user unsafe.Pointer, prefix *C.char, visit C.stasis_store_key_fn,
	visitUser unsafe.Pointer) C.stasis_status {
	return asked(user, "list", prefix, func(b *hostBackend, prefix string) error {
		return b.backend.List(prefix, func(key string, bytes int64, age time.Duration) bool {
			own := C.CString(key)
			defer C.free(unsafe.Pointer(own))
			if age < 0 {
				age = 0
			}
			return C.stasis_go_visit(visit, visitUser, own, C.uint64_t(bytes),
				C.uint64_t(age/time.Second)) == 0
		})
	})
}

//export goBackendRemove
func goBackendRemove(user unsafe.Pointer, key *C.char) C.stasis_status {
	return asked(user, "remove", key, func(b *hostBackend, key string) error {
		return b.backend.Remove(key)
	})
}

//export goBackendLock
func goBackendLock(user unsafe.Pointer, collect C.int32_t, lock *unsafe.Pointer) C.stasis_status {
	what := C.CString(map[bool]string{false: "write", true: "collect"}[collect != 0])
	defer C.free(unsafe.Pointer(what))
	return asked(user, "lock", what, func(b *hostBackend, _ string) error {
		unlock, err := b.backend.(locker).Lock(collect != 0)
		if err != nil {
			return err
		}
		token := C.malloc(1)
		b.mutex.Lock()
		defer b.mutex.Unlock()
		b.locks[token] = unlock
		*lock = token
		return nil
	})
}

//export goBackendUnlock
func goBackendUnlock(user, token unsafe.Pointer) {
	b := (*(*cgo.Handle)(user)).Value().(*hostBackend)
	b.mutex.Lock()
	unlock := b.locks[token]
	delete(b.locks, token)
	b.mutex.Unlock()
	C.free(token)
	fatally(unlock)
}

//export goBackendRelease
func goBackendRelease(user unsafe.Pointer) {
	b := (*(*cgo.Handle)(user)).Value().(*hostBackend)
	forget(user)
	if releasing, ok := b.backend.(interface{ Release() }); ok {
		fatally(releasing.Release)
	}
}

// fatally runs a function that cannot report a failure: a panic ends the program, and does not
// unwind through C.
func fatally(body func()) {
	finished := false
	defer func() {
		if !finished {
			value := recover()
			go panic(value)
			select {}
		}
	}()
	body()
	finished = true
}

// bytesOf is a slice over C's memory.
func bytesOf(data unsafe.Pointer, length C.size_t) []byte {
	if length == 0 {
		return []byte{}
	}
	return unsafe.Slice((*byte)(data), int(length))
}

func writeMark(to *C.char, mark string) error {
	const markBytes = 128 // with the zero that ends it
	if mark == "" || len(mark) >= markBytes || strings.IndexByte(mark, 0) >= 0 {
		return fmt.Errorf("the mark is %.60q: expected 1 to %d bytes", mark, markBytes-1)
	}
	copy(bytesOf(unsafe.Pointer(to), markBytes), mark+"\x00")
	return nil
}
