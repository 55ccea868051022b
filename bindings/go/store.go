// Stores: sessions under names, of which what they share is held once.

package stasis

// #include "bridge.h"
//
// static void close_store(void *store) { stasis_store_close(store); }
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"time"
	"unsafe"
)

// StoreOptions say how a store is opened; the zero value is the default in every field.
type StoreOptions struct {
	Existing bool // open no store that is not there: ErrNotFound
}

// StoreCallOptions say how a call on a store runs; the zero value is the default in every field.
type StoreCallOptions struct {
	Overwrite  bool // of Put, Fork, Import and Export: replace what is there, whatever it is
	FullLogits bool // of Put: keep the whole row of logits
	Codec      Codec
	Keep       Keep
	// Grace is of Collect over a backend without locks: what was put less long ago stays. It must
	// be longer than any put takes; 0: a day.
	Grace time.Duration

	// Progress gets bytes, of Collect objects that are removed; an error ends the call.
	Progress func(done, total uint64) error
}

// A StoreResult says what a Put or an Import has done.
type StoreResult struct {
	Root         Digest // of what is stored now
	State        Digest // of the session
	Sequence     uint64 // puts to this name
	BytesWritten uint64 // by this call
	BytesShared  uint64 // of pages and the like that the store had already
}

// A ConflictError is the error of a Put or an Import that found something else than expected.
// errors.Is finds ErrConflict in it, errors.As its *Error.
type ConflictError struct {
	Err   *Error
	Root  Digest // of what is stored instead; zero: nothing is
	State Digest // of that session: that of the session to be put, if the put's answer was lost
}

// Error is that of the library.
func (e *ConflictError) Error() string {
	return e.Err.Error()
}

// Unwrap gives the *Error.
func (e *ConflictError) Unwrap() error {
	return e.Err
}

// A StoredSession is a session in a list.
type StoredSession struct {
	Name     string // of a damaged root its key
	Damage   string // why the root is damaged, and the fields below are zero; "": it is not
	Root     Digest
	State    Digest // as Session.Digest
	Model    Digest
	Position uint64 // tokens in the log
	Bytes    uint64 // that an export writes
}

// Collected says what a collection found and removed.
type Collected struct {
	Sessions       uint64
	Objects        uint64 // that there were
	Bytes          uint64
	RemovedObjects uint64
	RemovedBytes   uint64
}

// A Store keeps any number of sessions, each under a name. Any number of goroutines, processes, and
// machines where the backend allows it, may use one at the same time: a Put replaces exactly the
// state that its session was put to or got from last, or fails with a *ConflictError, so that no
// turn is lost.
type Store struct {
	handle
}

func newStore(store *C.stasis_store, backend *hostBackend) *Store {
	s := &Store{handle{pointer: unsafe.Pointer(store), backend: backend,
		free: func(store unsafe.Pointer) { C.close_store(store) }}}
	runtime.SetFinalizer(s, (*Store).Close)
	return s
}

// OpenStore opens a store, or makes one: "dir:PATH" is a directory, "sqlite:PATH" one file of
// SQLite, "s3://..." object storage (stasis_store.h). Options may be nil.
func OpenStore(uri string, options *StoreOptions) (*Store, error) {
	c := brief("open store")
	own := c.path(uri) // with a path in it
	var given C.stasis_store_options
	C.stasis_store_options_init(&given, C.sizeof_stasis_store_options)
	if options != nil && options.Existing {
		given.flags = C.STASIS_STORE_EXISTING
	}
	var opened *C.stasis_store
	err := c.run(func(failure *C.stasis_error) C.stasis_status {
		return C.stasis_store_open(own, &given, &opened, failure)
	})
	if err != nil {
		return nil, err
	}
	return newStore(opened, nil), nil
}

// Close releases the store as soon as no call uses it. Sessions and snapshots that were got from it
// stay as they are. It returns nil.
func (s *Store) Close() error {
	runtime.SetFinalizer(s, nil)
	s.close()
	return nil
}

func (s *Store) call(c *call,
	body func(store *C.stasis_store, failure *C.stasis_error) C.stasis_status) error {
	defer runtime.KeepAlive(s)
	return s.use(c, func(object unsafe.Pointer, failure *C.stasis_error) C.stasis_status {
		return body((*C.stasis_store)(object), failure)
	})
}

func (c *call) storeOptions(o *StoreCallOptions) *C.stasis_store_call_options {
	var given C.stasis_store_call_options
	C.stasis_store_call_options_init(&given, C.sizeof_stasis_store_call_options)
	given.cancel = c.cancel
	if o != nil {
		if o.Overwrite {
			given.flags |= C.STASIS_STORE_OVERWRITE
		}
		if o.FullLogits {
			given.flags |= C.STASIS_STORE_FULL_LOGITS
		}
		given.codec, given.keep = C.uint32_t(o.Codec), C.uint32_t(o.Keep)
		if o.Grace < 0 {
			c.refuse(&Error{Op: c.op, Status: ErrInvalidArgument,
				Message: fmt.Sprintf("Grace is %v: expected 0 or more", o.Grace)})
		}
		given.grace_seconds = C.uint64_t((o.Grace + time.Second - 1) / time.Second)
		given.progress, given.progress_user = c.progress(o.Progress)
	}
	return &given
}

// written runs a call that ends with a result, or with a conflict that says what is there.
func (s *Store) written(c *call, body func(store *C.stasis_store, result *C.stasis_store_result,
	failure *C.stasis_error) C.stasis_status) (StoreResult, error) {
	result := C.stasis_store_result{struct_size: C.sizeof_stasis_store_result}
	err := s.call(c, func(store *C.stasis_store, failure *C.stasis_error) C.stasis_status {
		return body(store, &result, failure)
	})
	if own, ok := err.(*Error); ok && own.Status == ErrConflict {
		return StoreResult{}, &ConflictError{Err: own, Root: digestOf(&result.root),
			State: digestOf(&result.state)}
	} else if err != nil {
		return StoreResult{}, err
	}
	return StoreResult{Root: digestOf(&result.root), State: digestOf(&result.state),
		Sequence: uint64(result.sequence), BytesWritten: uint64(result.bytes_written),
		BytesShared: uint64(result.bytes_shared)}, nil
}

// Put stores a session under a name, whole or not at all. What is stored must be what this session,
// or the one it was forked from, put to this name or got from it last; if it did neither, nothing
// may be there. Otherwise the error is a *ConflictError. Options may be nil.
func (s *Store) Put(ctx context.Context, session *Session, name string,
	options *StoreCallOptions) (StoreResult, error) {
	c := begin(ctx, "put")
	own, given := c.name(name), c.storeOptions(options)
	object, err := session.take(c.op)
	if err != nil {
		c.refuse(err)
		return StoreResult{}, c.run(nil)
	}
	defer runtime.KeepAlive(session)
	defer session.giveBack()
	return s.written(c, func(store *C.stasis_store, result *C.stasis_store_result,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_store_put(store, (*C.stasis_session)(object), own, given, result, failure)
	})
}

// Get gives a new session that continues a stored one, with the same bits and settings, as
// Model.Load does from a file. Pages that the store has lost are computed again. Options may be
// nil.
func (s *Store) Get(ctx context.Context, model *Model, name string,
	options *LoadOptions) (*Session, error) {
	c := begin(ctx, "get")
	own, given := c.name(name), c.loadOptions(options)
	object, err := model.take(c.op)
	if err != nil {
		c.refuse(err)
		return nil, c.run(nil)
	}
	defer runtime.KeepAlive(model)
	defer model.giveBack()
	var got *C.stasis_session
	err = s.call(c, func(store *C.stasis_store, failure *C.stasis_error) C.stasis_status {
		return C.stasis_store_get(store, (*C.stasis_model)(object), own, given, &got, failure)
	})
	if err != nil {
		return nil, err
	}
	return newSession(got), nil
}

// Snapshot opens a stored session for inspection, comparison and verification. Pages are read when
// they are needed: after a Put to this name and a Collect they may be gone.
func (s *Store) Snapshot(ctx context.Context, name string) (*Snapshot, error) {
	c := begin(ctx, "store snapshot")
	own, given := c.name(name), c.storeOptions(nil)
	var opened *C.stasis_snapshot
	err := s.call(c, func(store *C.stasis_store, failure *C.stasis_error) C.stasis_status {
		return C.stasis_store_snapshot(store, own, given, &opened, failure)
	})
	if err != nil {
		return nil, err
	}
	snapshot := newSnapshot(opened)
	snapshot.backend = s.backend
	return snapshot, nil
}

// List gives the sessions of the store. Those that come and go meanwhile may be missing.
func (s *Store) List(ctx context.Context) ([]StoredSession, error) {
	c := begin(ctx, "list")
	given := c.storeOptions(nil)
	var sessions []StoredSession
	c.hooks.stored = func(session StoredSession) { sessions = append(sessions, session) }
	user := c.user()
	err := s.call(c, func(store *C.stasis_store, failure *C.stasis_error) C.stasis_status {
		return C.stasis_store_list(store, given, C.stasis_stored_session_fn(C.stasis_go_stored),
			user, failure)
	})
	return sessions, err
}

//export goStored
func goStored(user unsafe.Pointer, session *C.stasis_stored_session) C.int32_t {
	return answer(guarded(user, func(c *call) error {
		c.hooks.stored(StoredSession{Name: C.GoString(session.name),
			Damage: C.GoString(session.damage), Root: digestOf(&session.root),
			State: digestOf(&session.state), Model: digestOf(&session.model),
			Position: uint64(session.position), Bytes: uint64(session.bytes)})
		return nil
	}))
}

// Remove removes a name, also one whose root is damaged; Collect removes what it alone referred to.
// ErrNotFound: there is none. ErrConflict: it was replaced meanwhile.
func (s *Store) Remove(ctx context.Context, name string) error {
	c := begin(ctx, "remove")
	own, given := c.name(name), c.storeOptions(nil)
	return s.call(c, func(store *C.stasis_store, failure *C.stasis_error) C.stasis_status {
		return C.stasis_store_remove(store, own, given, failure)
	})
}

// Fork gives a session a second name, under which it goes on by itself: some hundred bytes.
// ErrConflict: `to` is there, unless Overwrite. Options may be nil.
func (s *Store) Fork(ctx context.Context, from, to string, options *StoreCallOptions) error {
	c := begin(ctx, "store fork")
	source, target, given := c.name(from), c.name(to), c.storeOptions(options)
	return s.call(c, func(store *C.stasis_store, failure *C.stasis_error) C.stasis_status {
		return C.stasis_store_fork(store, source, target, given, failure)
	})
}

// Collect removes what no session refers to, while others may use the store. Options may be nil.
func (s *Store) Collect(ctx context.Context, options *StoreCallOptions) (Collected, error) {
	c := begin(ctx, "collect")
	given := c.storeOptions(options)
	own := C.stasis_store_collected{struct_size: C.sizeof_stasis_store_collected}
	err := s.call(c, func(store *C.stasis_store, failure *C.stasis_error) C.stasis_status {
		return C.stasis_store_collect(store, given, &own, failure)
	})
	return Collected{Sessions: uint64(own.sessions), Objects: uint64(own.objects),
		Bytes: uint64(own.bytes), RemovedObjects: uint64(own.removed_objects),
		RemovedBytes: uint64(own.removed_bytes)}, err
}

// Import copies a snapshot file into the store, with the history of its commits; no model is
// needed. The name must be free, or the error is a *ConflictError. Options may be nil.
func (s *Store) Import(ctx context.Context, path, name string,
	options *StoreCallOptions) (StoreResult, error) {
	c := begin(ctx, "import")
	file, own, given := c.path(path), c.name(name), c.storeOptions(options)
	return s.written(c, func(store *C.stasis_store, result *C.stasis_store_result,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_store_import(store, file, own, given, result, failure)
	})
}

// Export copies a stored session into a new file, which a load continues. Options may be nil.
func (s *Store) Export(ctx context.Context, name, path string, options *StoreCallOptions) error {
	c := begin(ctx, "export")
	own, file, given := c.name(name), c.path(path), c.storeOptions(options)
	c.names = false // what may be missing is the session
	return s.call(c, func(store *C.stasis_store, failure *C.stasis_error) C.stasis_status {
		return C.stasis_store_export(store, own, file, given, failure)
	})
}
