// Package stasis keeps language-model sessions that can be frozen, copied, moved and proven, bit
// for bit. It wraps the C library's public header and nothing else; stasis.h is the specification
// of what each call does, what each status means, and what is unchanged after a failure: a call
// that fails or is cancelled changes nothing.
//
// A [Model] is opened once and shared freely. A [Session] is one timeline of tokens; a [Snapshot]
// is an opened file. Sessions and snapshots serve one caller at a time: a second goroutine gets
// [ErrBusy], never a race; or it waits where that is short, as one does that asks for the Info or
// Digest of a session while another goroutine has it generate. Models serve any number at once.
//
// # Errors
//
// Every error is an [*Error] that carries a [Status], or a [*ConflictError] that holds one:
// errors.Is(err, stasis.ErrBusy) asks for one, errors.As(err, &status) returns it. errors.Is also
// finds the error that a host's function returned (a callback, an io.Reader, an io.Writer, a
// [Backend]), and context.Canceled in addition to [ErrCancelled].
//
// # Contexts
//
// Long calls take a context and end soon after it is done. An io.Reader or io.Writer that blocks
// is not interrupted, only asked no more.
//
// # Callbacks
//
// Functions that a host gives (Progress, Logits, the function of Generate, readers and writers) run
// in the goroutine of the call. The object whose call they interrupt is busy for them, but the
// function of Generate may read the session. An error
// from one ends the call, which returns it wrapped with [ErrStopped], or [ErrIO] for a stream. A
// panic ends the call too and continues in the caller after the library has finished the call;
// runtime.Goexit (and so testing.T.FailNow) must not be called in one. The methods of a [Backend]
// may be called on threads of the library, which is another goroutine each time.
//
// # Lifetimes
//
// Close releases an object; calling it twice is harmless, and while a call runs it takes effect
// when that call ends. Afterwards calls return an error that is os.ErrClosed. Sessions outlive
// their model's Close. The garbage collector releases an object that is never closed, some time, or
// never.
package stasis

// #cgo pkg-config: stasis
// #include <stasis.h>
import "C"

// Version is that of the library, as 0xMMmmpp.
func Version() uint32 {
	return uint32(C.stasis_version())
}

// Build is how the library was built: version, compiler, kind of build, optional parts.
func Build() string {
	return C.GoString(C.stasis_build())
}
