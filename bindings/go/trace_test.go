// The trace by polling: events add up to the table of pages, and what is lost is counted.

package stasis_test

import (
	"errors"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

// drain takes all events that wait, a few at a time.
func drain(t *testing.T, session *stasis.Session, most int) (all []stasis.TraceEvent, lost uint64) {
	t.Helper()
	for {
		events, missed, err := session.TakeTrace(most)
		ok(t, err)
		lost += missed
		if len(events) == 0 {
			return all, lost
		}
		all = append(all, events...)
	}
}

func TestTraceAddsUpToThePages(t *testing.T) {
	session := private(t, model(t, local))
	ok(t, session.SetTrace(&stasis.TraceOptions{Events: 1000, Reads: true}))
	ok(t, session.Append(background, someTokens(150, 1), nil))
	ok(t, session.Evict(0, 70))
	child := must(session.Fork())(t)
	defer child.Close()
	ok(t, session.Append(background, someTokens(30, 2), nil))
	events, lost := drain(t, session, 7)
	if lost != 0 {
		t.Errorf("%d events lost", lost)
	}
	pages, kinds := 0, map[stasis.TraceKind]int{}
	var bytes uint64
	for _, event := range events {
		kinds[event.Kind]++
		switch event.Kind {
		case stasis.TraceTaken, stasis.TraceShared, stasis.TraceHeld:
			pages, bytes = pages+1, bytes+event.Bytes
		case stasis.TraceReleased:
			pages, bytes = pages-1, bytes-event.Bytes
		}
	}
	info := must(session.Info())(t)
	if uint64(pages) != info.PagesOwn+info.PagesShared || bytes != info.KVBytes || pages == 0 {
		t.Errorf("events give %d pages, %d bytes; the session has %+v", pages, bytes, info)
	}
	for _, kind := range []stasis.TraceKind{stasis.TraceAppend, stasis.TraceEvict,
		stasis.TraceFork, stasis.TraceRead, stasis.TraceFilled, stasis.TraceCopied} {
		if kinds[kind] == 0 {
			t.Errorf("no event of kind %d among %v", kind, kinds)
		}
	}
}

func TestTraceThatIsNotTakenIsCounted(t *testing.T) {
	session := private(t, model(t, local))
	if _, _, err := session.TakeTrace(1); !errors.Is(err, stasis.ErrNotFound) {
		t.Errorf("without a trace: %v", err)
	}
	if err := session.SetTrace(&stasis.TraceOptions{}); !errors.Is(err, stasis.ErrInvalidArgument) {
		t.Errorf("without room: %v", err)
	}
	ok(t, session.SetTrace(&stasis.TraceOptions{Events: 2}))
	ok(t, session.Append(background, someTokens(10, 1), nil)) // two groups' pages, the append
	if events, lost := drain(t, session, 10); len(events) != 2 || lost != 1 {
		t.Errorf("%d events, %d lost; expected 2 and 1", len(events), lost)
	}
	ok(t, session.SetTrace(nil))
	if _, _, err := session.TakeTrace(1); !errors.Is(err, stasis.ErrNotFound) {
		t.Errorf("after its end: %v", err)
	}
}
