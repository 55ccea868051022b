// Errors: a status, and what the library said about it.

package stasis

// #include <stasis.h>
import "C"

import (
	"io/fs"
	"os"
	"strings"
)

// A Status says what kind of failure an error is. The constants are errors themselves, to be
// compared with by errors.Is; the numbers are those of stasis.h and never change.
type Status int32

const (
	ErrInvalidArgument Status = C.STASIS_INVALID_ARGUMENT // out of its domain; the message names it
	ErrNotFound        Status = C.STASIS_NOT_FOUND        // no such file, position or state
	ErrIO              Status = C.STASIS_IO               // a file operation or a stream failed
	ErrNoMemory        Status = C.STASIS_NO_MEMORY        // an allocation failed
	ErrUnsupported     Status = C.STASIS_UNSUPPORTED      // valid, but not for this build or model
	ErrCorrupt         Status = C.STASIS_CORRUPT          // a file's bytes contradict themselves
	ErrVersion         Status = C.STASIS_VERSION          // of a format or contract: not supported
	ErrModelMismatch   Status = C.STASIS_MODEL_MISMATCH   // snapshot and model differ
	ErrFull            Status = C.STASIS_FULL             // the session's or the model's last position
	ErrBusy            Status = C.STASIS_BUSY             // another call is running on the object
	ErrCancelled       Status = C.STASIS_CANCELLED        // the context was done
	ErrDiverged        Status = C.STASIS_DIVERGED         // recomputing did not give the stored bits
	ErrDevice          Status = C.STASIS_DEVICE           // the device is missing or failed
	ErrStopped         Status = C.STASIS_STOPPED          // a callback asked to stop
	ErrInternal        Status = C.STASIS_INTERNAL         // a defect of the library
	ErrNonfinite       Status = C.STASIS_NONFINITE        // a NaN or infinity appeared
	ErrPoolExhausted   Status = C.STASIS_POOL_EXHAUSTED   // the KV budget is used up for now
	ErrBufferTooSmall  Status = C.STASIS_BUFFER_TOO_SMALL // the binding does not let this one out
	ErrConflict        Status = C.STASIS_CONFLICT         // other contents than expected
	ErrNoToken         Status = C.STASIS_NO_TOKEN         // a constraint leaves none to draw
	ErrTimeout         Status = C.STASIS_TIMEOUT          // Timeout of the options has passed
)

// Error gives the status its name in stasis.h, such as "BUSY".
func (s Status) Error() string {
	return C.GoString(C.stasis_status_name(C.stasis_status(s)))
}

// An Error is what every failed call returns.
type Error struct {
	Op      string // the call, such as "append"
	Status  Status
	Message string // what was expected, what was found, and where
	Cause   error  // what a callback, a stream or the context said; nil: none

	names bool // the call was given the name of a file
}

// Error says all of it in one line.
func (e *Error) Error() string {
	parts := []string{"stasis: " + e.Op, e.Status.Error()}
	if e.Message != "" {
		parts = append(parts, e.Message)
	}
	if e.Cause != nil {
		parts = append(parts, e.Cause.Error())
	}
	return strings.Join(parts, ": ")
}

// Is makes errors.Is find the status, os.ErrDeadlineExceeded for ErrTimeout, and fs.ErrNotExist
// where it was a file that was not found. A position or a session's state may be NOT_FOUND too.
func (e *Error) Is(target error) bool {
	return target == e.Status ||
		target == os.ErrDeadlineExceeded && e.Status == ErrTimeout ||
		target == fs.ErrNotExist && e.Status == ErrNotFound && e.names
}

// As makes errors.As give the status to a *Status.
func (e *Error) As(target any) bool {
	status, ok := target.(*Status)
	if ok {
		*status = e.Status
	}
	return ok
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error {
	return e.Cause
}
