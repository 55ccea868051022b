// Proof: two files compared, one file computed again.

package stasis

// #include "bridge.h"
import "C"

import (
	"context"
	"math"
	"runtime"
	"unsafe"
)

const (
	// NoPosition in a difference or report: none applies.
	NoPosition uint64 = math.MaxUint64
	// Nowhere in a difference or report: no layer, head or part applies.
	Nowhere uint32 = C.STASIS_NOWHERE
)

// A Difference is the first one of two snapshots.
type Difference struct {
	Equal       bool // and nothing below applies
	Element     Element
	Layer, Head uint32 // KV head
	Position    uint64
	Message     string
}

// Compare finds the first difference: identity and settings, then tokens, then keys and values.
func (s *Snapshot) Compare(with *Snapshot) (Difference, error) {
	c := brief("compare")
	other, err := with.take(c.op)
	if err == nil {
		defer with.giveBack()
	}
	defer runtime.KeepAlive(with)
	c.refuse(err)
	own := C.stasis_difference{struct_size: C.sizeof_stasis_difference}
	err = s.call(c, func(snapshot *C.stasis_snapshot, failure *C.stasis_error) C.stasis_status {
		return C.stasis_snapshot_compare(snapshot, (*C.stasis_snapshot)(other), &own, failure)
	})
	return Difference{
		Equal: own.equal != 0, Element: Element(own.element), Layer: uint32(own.layer),
		Head: uint32(own.head), Position: uint64(own.position),
		Message: C.GoString(&own.message[0]),
	}, err
}

// VerifyOptions say what is computed again; the zero value: everything.
type VerifyOptions struct {
	Chunk        int     // as in RunOptions
	AuditPercent float64 // of the pages, those to recompute; 0: the whole log
	AuditSeed    uint64  // decides which; to be chosen after the file was made
	Strict       bool    // checksums of all that the file holds as well, dead bytes included

	// Progress gets positions; an error ends the call.
	Progress func(done, total uint64) error
}

// Parts of a page.
const (
	Keys   uint32 = C.STASIS_KEYS
	Values uint32 = C.STASIS_VALUES
)

// A VerifyReport reports what was computed again, and the first difference.
type VerifyReport struct {
	Verified          bool
	Positions         uint64 // recomputed
	Position          uint64 // first that differs
	Layer, Head, Part uint32
	Element           Element
	Message           string
	Drawn             uint64 // tokens drawn again
	DrawnOtherwise    uint64 // of these, those that differed
	AuditPages        uint64
	AuditDrawn        uint64
	UnreachableBegin  uint64 // positions that the audit cannot recompute
	UnreachableEnd    uint64
	Sections          uint64 // that Strict has found right
	Older             bool   // the last commit is damaged: the state before it was verified
}

// Verify computes the contents of the file again from its tokens and compares every bit. With
// ErrDiverged the report names the difference. Options may be nil.
func (s *Snapshot) Verify(ctx context.Context, model *Model, options *VerifyOptions) (VerifyReport,
	error) {
	c := begin(ctx, "verify")
	var given C.stasis_verify_options
	C.stasis_verify_options_init(&given, C.sizeof_stasis_verify_options)
	given.cancel = c.cancel
	if options != nil {
		given.chunk = c.count("Chunk", options.Chunk)
		given.audit_percent = C.double(options.AuditPercent)
		given.audit_seed = C.uint64_t(options.AuditSeed)
		if options.Strict {
			given.flags |= C.STASIS_VERIFY_STRICT
		}
		given.progress, given.progress_user = c.progress(options.Progress)
	}
	var taken unsafe.Pointer
	taken, err := model.take(c.op)
	if err == nil {
		defer model.giveBack()
	}
	defer runtime.KeepAlive(model)
	c.refuse(err)
	own := C.stasis_verify_report{struct_size: C.sizeof_stasis_verify_report}
	err = s.call(c, func(snapshot *C.stasis_snapshot, failure *C.stasis_error) C.stasis_status {
		return C.stasis_snapshot_verify(snapshot, (*C.stasis_model)(taken), &given, &own, failure)
	})
	return VerifyReport{
		Verified: own.verified != 0, Positions: uint64(own.positions),
		Position: uint64(own.position), Layer: uint32(own.layer), Head: uint32(own.head),
		Part: uint32(own.part), Element: Element(own.element),
		Message: C.GoString(&own.message[0]), Drawn: uint64(own.drawn),
		DrawnOtherwise: uint64(own.drawn_otherwise), AuditPages: uint64(own.audit_pages),
		AuditDrawn: uint64(own.audit_drawn), UnreachableBegin: uint64(own.unreachable_begin),
		UnreachableEnd: uint64(own.unreachable_end), Sections: uint64(own.sections),
		Older: own.older != 0,
	}, err
}
