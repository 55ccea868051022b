// Generation as an iterator, in the manner of sql.Rows.

package stasis

import (
	"context"
	"errors"
	"runtime"
	"sync"
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
// (a drafter's passes excepted, which leave no trace). From the first Next until the end, or Close,
// the session is busy. A Generation serves one goroutine; Close may come from any.
type Generation struct {
	run     *generation // apart, so that the finaliser can see that nobody asks any more
	current Generated
}

// A Generation runs its Generate in a goroutine of its own, which waits between two calls of Next.
type generation struct {
	session *Session
	ctx     context.Context
	options *GenerateOptions

	start    sync.Once
	events   chan Generated
	more     chan struct{} // Next asks for another
	over     chan struct{} // closed when Generate has returned
	closed   chan struct{} // by Close
	closing  sync.Once
	orphaned bool // the context was done while nobody asked
	result   GenerateResult
	err      error
}

var errClosed = errors.New("the generation was closed")

// Generation begins one, as Generate with these options would. Options may be nil; they are used
// when Next is first called.
func (s *Session) Generation(ctx context.Context, options *GenerateOptions) *Generation {
	g := &Generation{run: &generation{session: s, ctx: ctx, options: options,
		events: make(chan Generated), more: make(chan struct{}), over: make(chan struct{}),
		closed: make(chan struct{})}}
	runtime.SetFinalizer(g, func(g *Generation) { g.run.close() })
	return g
}

// Next asks for the next token, and reports whether it got one. It returns false at the end, after
// a failure and after Close.
func (g *Generation) Next() bool {
	defer runtime.KeepAlive(g)
	r := g.run
	first := false
	r.start.Do(func() {
		first = true
		go r.generate()
	})
	if !first {
		select {
		case r.more <- struct{}{}:
		case <-r.over:
			return false
		}
	}
	select {
	case g.current = <-r.events:
		return true
	case <-r.over:
		return false
	}
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
	select {
	case <-g.run.over:
		if errors.Is(g.run.err, errClosed) {
			return nil
		}
		return g.run.err
	default:
		return nil
	}
}

// Result reports what the generation did, after Next has returned false or Close was called.
func (g *Generation) Result() GenerateResult {
	select {
	case <-g.run.over:
		return g.run.result
	default:
		return GenerateResult{}
	}
}

// Close ends the generation where it stands and frees the session for other calls. It returns Err.
func (g *Generation) Close() error {
	runtime.SetFinalizer(g, nil)
	g.run.close()
	<-g.run.over
	return g.Err()
}

func (r *generation) close() {
	r.closing.Do(func() { close(r.closed) })
	r.start.Do(func() { close(r.over) }) // it never began
}

func (r *generation) generate() {
	defer close(r.over)
	r.result, r.err = r.session.Generate(r.ctx, r.options, r.deliver)
}

// deliver passes a token to Next and waits until Next asks for another one or the generation ends.
func (r *generation) deliver(generated Generated) error {
	if r.orphaned {
		return nil // Generate sees the context itself
	}
	select {
	case r.events <- generated:
	case <-r.closed:
		return errClosed
	}
	select {
	case <-r.more:
	case <-r.closed:
		return errClosed
	case <-r.ctx.Done():
		r.orphaned = true
	}
	return nil
}
