// Steps of several sessions, computed together.

package stasis

// #include "bridge.h"
import "C"

import (
	"context"
	"math"
	"runtime"
)

// A StepItem says what one session does in a step, and what came of it.
type StepItem struct {
	Session *Session
	Tokens  []Token // appended first
	Sample  bool    // then draw the next token and append it

	Token Token // out: the one drawn
	Err   error // out: what this session met; the others are not concerned
}

// Step computes one step of several sessions of one model together; each gets the bits that it gets
// alone. The failure of an item is its Err. An error of the whole, ErrInvalidArgument (no session,
// one twice, several models, a Logits option) or ErrBusy: nothing was done. Cancelled or stopped:
// sessions whose Err is nil are complete, the others as before. Options may be nil.
func Step(ctx context.Context, items []StepItem, options *RunOptions) error {
	c := begin(ctx, "step")
	given := c.runOptions(options)
	defer runtime.KeepAlive(items)
	var tokens []Token
	failures := array(c, make([]C.stasis_error, len(items)))
	own := array(c, make([]C.stasis_step_item, len(items)))
	for i := range items {
		item := &items[i]
		item.Token, item.Err = 0, nil
		if item.Session != nil { // else the library refuses it, by its number
			session, err := item.Session.take(c.op)
			if err != nil {
				c.refuse(err)
				continue
			}
			defer item.Session.giveBack()
			own[i].session = (*C.stasis_session)(session)
		}
		own[i].struct_size = C.sizeof_stasis_step_item
		own[i].begin, own[i].count = C.size_t(len(tokens)), C.size_t(len(item.Tokens))
		if item.Sample {
			own[i].flags = C.STASIS_STEP_SAMPLE
		}
		own[i].status = untouched
		own[i].error = &failures[i]
		tokens = append(tokens, item.Tokens...)
	}
	return c.run(func(failure *C.stasis_error) C.stasis_status {
		status := C.stasis_sessions_step(first(own), C.sizeof_stasis_step_item,
			C.size_t(len(own)), tokenArray(tokens), C.size_t(len(tokens)), given, failure)
		for i := range own {
			if own[i].status == untouched {
				items[i].Err = c.verdict(status, failure)
			} else {
				items[i].Token = Token(own[i].token)
				items[i].Err = c.verdict(own[i].status, &failures[i])
			}
		}
		return status
	})
}

// No status: the library wrote nothing to the item.
const untouched = math.MinInt32
