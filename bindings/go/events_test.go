// Iterators over the events of a scheduler.

package stasis_test

import (
	"context"
	"sync"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

// submitted is some sessions that are in the scheduler, with the tokens that each draws alone.
func submitted(t *testing.T, s *stasis.Scheduler, m *stasis.Model,
	count int) map[*stasis.Session][]stasis.Token {
	t.Helper()
	expected := map[*stasis.Session][]stasis.Token{}
	for i := 0; i < count; i++ {
		session, alone := private(t, m), private(t, m)
		ok(t, alone.Append(background, someTokens(30, uint32(i)), nil))
		for n := 0; n < 3+i; n++ {
			expected[session] = append(expected[session], must(alone.Decode())(t))
		}
		ok(t, s.Submit(session, &stasis.GenerateOptions{TokensMax: uint64(3 + i), IgnoreEnd: true},
			&stasis.SchedulerPrompt{Tokens: someTokens(30, uint32(i))}))
	}
	return expected
}

func TestEventsOfAll(t *testing.T) {
	m := model(t, plain)
	s := scheduler(t, m, nil)
	expected := submitted(t, s, m, 5)
	events, got := s.Events(background, nil), map[*stasis.Session][]stasis.Token{}
	for events.Next() {
		event := events.Event()
		if event.End {
			ok(t, event.Err)
			equal(t, event.Count, uint64(len(expected[event.Session])))
		} else {
			got[event.Session] = append(got[event.Session], event.Token)
		}
	}
	ok(t, events.Err())
	equal(t, len(got), 5)
	for session, tokens := range expected {
		equal(t, len(got[session]), len(tokens))
		for i, token := range tokens {
			equal(t, got[session][i], token)
		}
	}
	equal(t, events.Next(), false)
	equal(t, s.Events(background, nil).Next(), false) // nobody is in it
}

// Several goroutines with iterators over all events end together, though one has taken the last.
func TestEventsOfAllInGoroutines(t *testing.T) {
	m := model(t, plain)
	s := scheduler(t, m, nil)
	expected := submitted(t, s, m, 6)
	var group sync.WaitGroup
	var mutex sync.Mutex
	ends, errs := 0, make([]error, 3)
	for i := range errs {
		i := i
		group.Add(1)
		go func() {
			defer group.Done()
			events := s.Events(background, nil)
			for events.Next() {
				if event := events.Event(); event.End {
					mutex.Lock()
					ends++
					mutex.Unlock()
				}
			}
			errs[i] = events.Err()
		}()
	}
	group.Wait()
	equal(t, ends, len(expected))
	for _, err := range errs {
		ok(t, err)
	}
}

func TestEventsOfOne(t *testing.T) {
	m := model(t, plain)
	s := scheduler(t, m, nil)
	for session, tokens := range submitted(t, s, m, 4) {
		events := s.Events(background, session)
		for _, token := range tokens {
			equal(t, events.Next(), true)
			equal(t, events.Event().Token, token)
			equal(t, events.Event().Session, session)
		}
		equal(t, events.Next(), true)
		equal(t, events.Event().End, true)
		ok(t, session.Append(background, someTokens(1, 1), nil)) // free
		equal(t, s.Events(background, session).Next(), false)
		ok(t, s.Submit(session, &stasis.GenerateOptions{TokensMax: 1}, nil))
		equal(t, events.Next(), false) // that is for another one
		ok(t, events.Err())
		equal(t, s.Events(background, session).Next(), true)
	}
}

// What an iterator that was left has not given comes to the next one.
func TestEventsThatAreLeft(t *testing.T) {
	m := model(t, plain)
	s := scheduler(t, m, nil)
	for session, tokens := range submitted(t, s, m, 3) {
		for _, token := range tokens {
			events := s.Events(background, session)
			equal(t, events.Next(), true)
			equal(t, events.Event().Token, token)
		}
		ok(t, s.Cancel(session))
		last := s.Events(background, session)
		equal(t, last.Next(), true)
		equal(t, last.Event().End, true)
	}
}

func TestEventsThatFail(t *testing.T) {
	m := model(t, plain)
	s := scheduler(t, m, nil)
	session := sessionOf(t, m, someTokens(20, 1))
	ok(t, s.Submit(session, nil, nil))
	ctx, cancel := context.WithCancel(background)
	events := s.Events(ctx, session)
	equal(t, events.Next(), true)
	cancel()
	equal(t, events.Next(), false)
	refused(t, events.Err(), stasis.ErrCancelled)

	events = s.Events(background, nil) // a scheduler that is closed ends all of them
	equal(t, events.Next(), true)
	ok(t, s.Close())
	equal(t, events.Next(), false)
	if events.Err() == nil {
		t.Fatal("it ended without an error")
	}
}
