// Which texts a session may draw.

package stasis

/*
#include "bridge.h"
*/
import "C"

import (
	"context"
	"unsafe"
)

// A ConstraintKind is a notation of constraints; CONSTRAINTS.md says what each means.
type ConstraintKind uint32

const (
	JSONSchema ConstraintKind = C.STASIS_CONSTRAINT_JSON_SCHEMA // the instances of a JSON schema
	JSON       ConstraintKind = C.STASIS_CONSTRAINT_JSON        // any JSON value; no text
	Regex      ConstraintKind = C.STASIS_CONSTRAINT_REGEX       // what matches it as a whole
	Grammar    ConstraintKind = C.STASIS_CONSTRAINT_GRAMMAR     // the texts of a grammar in GBNF
)

// A Constraint is a set of texts that a reply must be one of.
type Constraint struct {
	Kind ConstraintKind
	Text string
}

// SetConstraint says which texts replies may be from now on; nil: any. Each reply, up to its end
// token, is one text. The constraint is saved with the session, and tokens are verified under it.
func (s *Session) SetConstraint(ctx context.Context, constraint *Constraint) error {
	c := begin(ctx, "set constraint")
	given := Constraint{Kind: C.STASIS_CONSTRAINT_NONE}
	if constraint != nil {
		given = *constraint
	}
	text := []byte(given.Text)
	return s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_set_constraint(session, C.uint32_t(given.Kind),
			(*C.char)(unsafe.Pointer(first(text))), C.size_t(len(text)), c.cancel, failure)
	})
}

// SetAllowed says which tokens the next draw may give, for masks of the host's own: token t, if bit
// t % 32 of bits[t / 32] is set; nil: all. It holds for one token.
func (s *Session) SetAllowed(bits []uint32) error {
	return s.call(brief("set allowed"), func(session *C.stasis_session,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_set_allowed(session, (*C.uint32_t)(first(bits)),
			C.size_t(len(bits)), failure)
	})
}
