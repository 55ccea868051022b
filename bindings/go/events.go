// Events of a scheduler as an iterator, in the manner of bufio.Scanner.

package stasis

import (
	"context"
	"errors"
)

// SchedulerEvents gives the events of a scheduler, one at each call of Next:
//
//	events := scheduler.Events(ctx, nil)
//	for events.Next() {
//		event := events.Event()
//		...
//	}
//	err := events.Err()
//
// It holds nothing, and may be left at any time: what it has not given waits for whoever asks
// next. It serves one goroutine. Any number of them may each have one, all for any session or each
// for its own; an event comes to one of them.
type SchedulerEvents struct {
	scheduler *Scheduler
	ctx       context.Context
	session   *Session // nil: any
	over      bool
	event     SchedulerEvent
	err       error
}

// Events begins an iterator over the events of a session, up to its end; nil: of any, taking turns,
// until no session is in the scheduler. Whoever is in its Next computes, as in Scheduler.Next.
func (s *Scheduler) Events(ctx context.Context, session *Session) *SchedulerEvents {
	return &SchedulerEvents{scheduler: s, ctx: ctx, session: session}
}

// Next waits for the next event, and reports whether it got one. It returns false after the end,
// and after an error: the context's, or that of a whole pass. What ends one session alone is in its
// last event.
func (e *SchedulerEvents) Next() bool {
	if e.over {
		return false
	}
	var found bool
	if e.session == nil {
		e.event, found, e.err = e.scheduler.wait(e.ctx, nil, e.scheduler.idle)
	} else if own := e.scheduler.addressOf(e.session); own != nil {
		gone := func() bool { return e.scheduler.addressOf(e.session) == nil }
		e.event, found, e.err = e.scheduler.wait(e.ctx, own, gone)
		if errors.Is(e.err, ErrNotFound) { // another goroutine has taken its end
			e.err = nil
		}
	}
	e.over = !found || (e.session != nil && e.event.End)
	return found
}

// Event is what Next has brought.
func (e *SchedulerEvents) Event() SchedulerEvent {
	return e.event
}

// Err says what went wrong, once Next has returned false; nil: nothing did.
func (e *SchedulerEvents) Err() error {
	return e.err
}

// idle reports whether no session is in the scheduler.
func (s *Scheduler) idle() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return len(s.sessions) == 0
}
