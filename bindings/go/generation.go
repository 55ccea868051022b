// Generation as an iterator, in the manner of sql.Rows.

package stasis

// #include "bridge.h"
import "C"

import (
	"context"
	"runtime"
	"sync"
	"unsafe"
)

// A Generation gives the tokens of one Generate, one at each call of Next:
//
//	generation := session.Generation(ctx, nil)
//	defer generation.Close()
//	for generation.Next() {
//		fmt.Print(generation.Text())
//	}
//	err := generation.Err()
//
// Nothing is computed before it is asked for, so that the log holds what was delivered and no more
// (a drafter's passes excepted, which leave no trace). Meanwhile the session can be read, by any
// goroutine: Info, Digest, Text, Fork, Save and their like wait for the token that is being drawn.
// What would change it gets ErrBusy from the first Next until the end, or Close. A Generation
// serves one goroutine; Close may come from any.
type Generation struct {
	session *Session
	ctx     context.Context
	options *GenerateOptions

	mutex   sync.Mutex
	pointer *C.stasis_generation // nil: not begun, or over
	cancel  *C.stasis_cancel     // nil: the context cannot be done
	over    bool
	current Generated
	result  GenerateResult
	err     error
}

// Generation begins one, as Generate with these options would. Options may be nil; they are used
// when Next is first called.
func (s *Session) Generation(ctx context.Context, options *GenerateOptions) *Generation {
	g := &Generation{session: s, ctx: ctx, options: options}
	runtime.SetFinalizer(g, (*Generation).Close)
	return g
}

// Next asks for the next token, and reports whether it got one. It returns false at the end, after
// a failure and after Close.
func (g *Generation) Next() bool {
	defer runtime.KeepAlive(g)
	g.mutex.Lock()
	defer g.mutex.Unlock()
	if g.over {
		return false
	}
	if g.pointer == nil {
		if g.err = g.begin(); g.err != nil {
			g.over = true
			return false
		}
	}
	generated, err := g.ask()
	if err == nil && !generated.Last {
		g.current = generated
		return true
	}
	g.err = err
	g.end()
	if generated.Text == "" {
		return false
	}
	g.current = generated // what was held back
	return true
}

// begin takes the session until the end, so that it is not freed under the generation.
func (g *Generation) begin() error {
	c := begin(g.ctx, "generate")
	given := c.generateOptions(g.options, nil)
	c.lends = true
	session, closed := g.session.take(c.op)
	if closed != nil {
		c.refuse(closed)
	}
	var begun *C.stasis_generation
	err := c.run(func(failure *C.stasis_error) C.stasis_status {
		return C.stasis_generation_begin((*C.stasis_session)(session), given, &begun, failure)
	})
	if err == nil {
		g.pointer, g.cancel = begun, c.cancel
		return nil
	}
	C.stasis_cancel_release(c.cancel)
	if closed == nil {
		g.session.giveBack()
	}
	return err
}

// ask returns an event with Last where there is no other token, which after a cancel brings the
// text that was held back, beside the error.
func (g *Generation) ask() (Generated, error) {
	var failure C.stasis_error
	own := C.stasis_generated{struct_size: C.sizeof_stasis_generated}
	c := &call{op: "generate", ctx: g.ctx, cancel: g.cancel}
	if g.ctx.Err() != nil {
		C.stasis_cancel_request(g.cancel)
	}
	settle := c.follow()
	status := C.stasis_generation_next(g.pointer, &own, &failure)
	settle()
	return generatedOf(&own), c.verdict(status, &failure)
}

// end frees what the generation holds. The library does not wait for calls on the session.
func (g *Generation) end() {
	g.over = true
	if g.pointer == nil {
		return
	}
	own := C.stasis_generate_result{struct_size: C.sizeof_stasis_generate_result}
	C.stasis_generation_get_result(g.pointer, &own, nil)
	g.result = resultOf(&own)
	C.stasis_generation_end(g.pointer)
	C.stasis_cancel_release(g.cancel)
	g.pointer, g.cancel = nil, nil
	g.session.giveBack()
}

// Token is the one that Next has brought.
func (g *Generation) Token() Token {
	return g.current.Token
}

// Text is what can be shown since the last token.
func (g *Generation) Text() string {
	return g.current.Text
}

// Generated returns the token and its text, position and log-probabilities.
func (g *Generation) Generated() Generated {
	return g.current
}

// Err says what went wrong, once Next has returned false; nil: nothing did. That Close ended the
// generation is no error.
func (g *Generation) Err() error {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.err
}

// Result reports what the generation did, after Next has returned false or Close was called.
func (g *Generation) Result() GenerateResult {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.result
}

// Close ends the generation where it stands and frees the session for other calls. It returns Err.
func (g *Generation) Close() error {
	runtime.SetFinalizer(g, nil)
	g.mutex.Lock()
	defer g.mutex.Unlock()
	g.end()
	return g.err
}

// A TextStream makes text of tokens that Step or Decode have drawn, as Generate makes it of its
// own, and says when the text stops. It serves one caller at a time.
type TextStream struct {
	handle
}

// A Piece is the text that became final with a token.
type Piece struct {
	Text       string     // whole characters, nothing that may yet turn out to be a stop string
	Stopped    bool       // a stop condition is met; later tokens add nothing
	StopReason StopReason // which, if Stopped
}

// TextStream makes one with the stop conditions of the options, of which TokensMax counts this
// stream's tokens; LogProbabilities and Timeout must be 0. Options may be nil.
func (m *Model) TextStream(options *GenerateOptions) (*TextStream, error) {
	c := brief("text stream")
	given := c.generateOptions(options, nil)
	var made *C.stasis_text_stream
	err := m.call(c, func(model *C.stasis_model, failure *C.stasis_error) C.stasis_status {
		return C.stasis_text_stream_create(model, given, &made, failure)
	})
	if err != nil {
		return nil, err
	}
	t := &TextStream{handle{pointer: unsafe.Pointer(made), free: func(stream unsafe.Pointer) {
		C.stasis_text_stream_free((*C.stasis_text_stream)(stream))
	}}}
	runtime.SetFinalizer(t, (*TextStream).Close)
	return t, nil
}

// Push adds a token.
func (t *TextStream) Push(token Token) (Piece, error) {
	return t.piece(func(stream *C.stasis_text_stream, piece *C.stasis_text_piece,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_text_stream_push(stream, C.stasis_token(token), piece, failure)
	})
}

// Finish ends the text, stopped or not: the piece has what was held back.
func (t *TextStream) Finish() (Piece, error) {
	return t.piece(func(stream *C.stasis_text_stream, piece *C.stasis_text_piece,
		failure *C.stasis_error) C.stasis_status {
		return C.stasis_text_stream_finish(stream, piece, failure)
	})
}

// Close releases the stream. It returns nil.
func (t *TextStream) Close() error {
	runtime.SetFinalizer(t, nil)
	t.close()
	return nil
}

func (t *TextStream) piece(body func(stream *C.stasis_text_stream, piece *C.stasis_text_piece,
	failure *C.stasis_error) C.stasis_status) (Piece, error) {
	defer runtime.KeepAlive(t)
	var piece Piece
	err := t.use(brief("text stream"), func(object unsafe.Pointer,
		failure *C.stasis_error) C.stasis_status {
		own := C.stasis_text_piece{struct_size: C.sizeof_stasis_text_piece}
		status := body((*C.stasis_text_stream)(object), &own, failure)
		if status == C.STASIS_OK {
			piece = Piece{Text: C.GoStringN(own.text, C.int(own.length)),
				Stopped: own.stopped != 0, StopReason: StopReason(own.stop_reason)}
		}
		return status
	})
	return piece, err
}
