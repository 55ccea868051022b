// Generation with a function that is called with each token, and what speeds it up.

package stasis

// #include "bridge.h"
import "C"

import (
	"context"
	"time"
	"unsafe"
)

// GenerateOptions say when generation ends; the zero value generates until the model's end token or
// the session's end.
type GenerateOptions struct {
	TokensMax        uint64 // 0: until the session is full
	IgnoreEnd        bool   // the model's own end tokens do not stop
	StopTokens       []Token
	StopStrings      []string
	LogProbabilities int // of each token, and of so many most likely ones in its place
	// Timeout ends the generation, from the call that begins it on, with ErrTimeout; tokens stay.
	// 0: no limit. A context's deadline does the same with ErrCancelled.
	Timeout time.Duration
}

// Generated is a token that generation has appended.
type Generated struct {
	Token    Token
	Position uint64
	// Text is what can be shown since the last one: whole characters, nothing that may yet turn
	// out to be a stop string.
	Text string
	// Last marks an event after the last token, with text that was held back; Token is that token
	// again.
	Last           bool
	LogProbability float32     // of the token, by the model's own distribution
	Best           []Candidate // most likely first
}

// A StopReason says what ended a generation.
type StopReason uint32

const (
	StopLength    StopReason = C.STASIS_STOP_LENGTH    // TokensMax, or the session is full
	StopEndToken  StopReason = C.STASIS_STOP_END_TOKEN // in the log, not in the text
	StopString    StopReason = C.STASIS_STOP_STRING    // its tokens are in the log
	StopCallback  StopReason = C.STASIS_STOP_CALLBACK  // the error is ErrStopped
	StopCancelled StopReason = C.STASIS_STOP_CANCELLED // the error is ErrCancelled
	StopNoToken   StopReason = C.STASIS_STOP_NO_TOKEN  // the constraint allows none
	StopTimeout   StopReason = C.STASIS_STOP_TIMEOUT   // the error is ErrTimeout
)

// GenerateResult reports what a generation did, however it ended.
type GenerateResult struct {
	StopReason    StopReason
	Begin, Count  uint64 // position of the first new token, and their number
	Drafted       uint64 // tokens that a drafter proposed
	Accepted      uint64 // of these, tokens that were then drawn
	Passes        uint64 // passes of the model
	DraftFailures uint64
}

func (c *call) generateOptions(o *GenerateOptions,
	each func(Generated) error) *C.stasis_generate_options {
	var given C.stasis_generate_options
	C.stasis_generate_options_init(&given, C.sizeof_stasis_generate_options)
	given.cancel = c.cancel
	if each != nil {
		c.hooks.each = each
		given.callback = C.stasis_generate_fn(C.stasis_go_generated)
		given.callback_user = c.user()
	}
	if o == nil {
		return &given
	}
	given.tokens_max = C.uint64_t(o.TokensMax)
	given.timeout_ms = c.milliseconds(o.Timeout)
	if o.IgnoreEnd {
		given.flags = C.STASIS_GENERATE_IGNORE_END
	}
	given.stop_tokens = tokenArray(array(c, o.StopTokens))
	given.stop_token_count = C.size_t(len(o.StopTokens))
	stops := make([]*C.char, len(o.StopStrings))
	for i, stop := range o.StopStrings {
		if stops[i] = c.text("a stop string", stop); stops[i] == nil {
			stops[i] = (*C.char)(c.block(1)) // the library refuses an empty one, by its number
		}
	}
	given.stop_strings = first(array(c, stops))
	given.stop_string_count = C.size_t(len(stops))
	given.log_probability_count = c.count("LogProbabilities", o.LogProbabilities)
	return &given
}

// Generate decodes until something stops it, and calls `each` (may be nil) with every token; an
// error from it stops. Whatever does, decoded tokens stay. Options may be nil. The speed of calls
// on several sessions at once does not add up; a Scheduler computes many together.
func (s *Session) Generate(ctx context.Context, options *GenerateOptions,
	each func(Generated) error) (GenerateResult, error) {
	c := begin(ctx, "generate")
	given := c.generateOptions(options, each)
	own := C.stasis_generate_result{struct_size: C.sizeof_stasis_generate_result}
	err := s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		return C.stasis_session_generate(session, given, &own, failure)
	})
	return resultOf(&own), err
}

func resultOf(own *C.stasis_generate_result) GenerateResult {
	return GenerateResult{
		StopReason: StopReason(own.stop_reason), Begin: uint64(own.begin),
		Count: uint64(own.count), Drafted: uint64(own.drafted), Accepted: uint64(own.accepted),
		Passes: uint64(own.passes), DraftFailures: uint64(own.draft_failures),
	}
}

func generatedOf(own *C.stasis_generated) Generated {
	count := int(own.log_probability_count)
	return Generated{
		Token: Token(own.token), Position: uint64(own.position),
		Text: string(unsafe.Slice((*byte)(unsafe.Pointer(own.text)), int(own.length))),
		Last: own.last != 0, LogProbability: float32(own.log_probability),
		Best: candidatesOf(copied[Token](unsafe.Pointer(own.best_tokens), count),
			copied[float32](unsafe.Pointer(own.best_log_probabilities), count)),
	}
}

// DraftOptions say how many tokens a drafter proposes for a pass.
type DraftOptions struct {
	TokensMin uint64 // 0: 2
	TokensMax uint64 // up to 32; 0: 8
}

// SetDraft says what proposes tokens for Generate: a smaller model; the session's own, whose MTP
// head (ModelInfo.MTPBytes) then does; or with a nil model a search in the log; with options nil as
// well, nothing. It changes the speed and nothing else.
func (s *Session) SetDraft(draft *Model, options *DraftOptions) error {
	c := brief("set draft")
	var model unsafe.Pointer
	if draft != nil {
		taken, err := draft.take(c.op)
		if err != nil {
			c.refuse(err)
		} else {
			model = taken
			defer draft.giveBack()
		}
	}
	return s.call(c, func(session *C.stasis_session, failure *C.stasis_error) C.stasis_status {
		var given *C.stasis_draft_options
		if options != nil {
			given = new(C.stasis_draft_options)
			C.stasis_draft_options_init(given, C.sizeof_stasis_draft_options)
			given.tokens_min = C.uint64_t(options.TokensMin)
			given.tokens_max = C.uint64_t(options.TokensMax)
		}
		return C.stasis_session_set_draft(session, (*C.stasis_model)(model), given, failure)
	})
}
