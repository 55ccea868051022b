// Schedulers: what goroutines hear is what their sessions say alone.

package stasis_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	stasis "stasis.example/stasis.git/bindings/go"
)

func scheduler(t testing.TB, m *stasis.Model, options *stasis.SchedulerOptions) *stasis.Scheduler {
	t.Helper()
	made := must(m.NewScheduler(options))(t)
	t.Cleanup(func() { made.Close() })
	return made
}

type spoken struct {
	text   string
	result stasis.GenerateResult
	digest stasis.Digest
}

var greeting = stasis.Message{Role: "user", Text: "Let's define k as 5. What is k?"}

func spokenAlone(t testing.TB, m *stasis.Model, options *stasis.GenerateOptions) spoken {
	t.Helper()
	var said spoken
	session := private(t, m)
	ok(t, session.AppendMessage(background, greeting, stasis.MessageReply, nil))
	said.result = must(session.Generate(background, options, func(g stasis.Generated) error {
		said.text += g.Text
		return nil
	}))(t)
	said.digest = digest(t, session)
	return said
}

func TestSchedulerGoroutines(t *testing.T) {
	m := model(t, gemma)
	s := scheduler(t, m, &stasis.SchedulerOptions{SessionsMax: 5, Slice: 16})
	options := &stasis.GenerateOptions{TokensMax: 20, StopStrings: []string{"no such text"},
		LogProbabilities: 2}
	expected := spokenAlone(t, m, options)
	ctx, cancel := context.WithTimeout(background, time.Minute)
	defer cancel()
	var group, submitted sync.WaitGroup
	said := make([]spoken, 12)
	submitted.Add(len(said)) // all of them, before one of them computes
	errs := make([]error, len(said))
	sessions := make([]*stasis.Session, len(said))
	for i := range said {
		sessions[i] = private(t, m)
		i := i
		group.Add(1)
		go func() {
			defer group.Done()
			errs[i] = s.Submit(sessions[i], options, &stasis.SchedulerPrompt{Message: greeting})
			submitted.Done()
			submitted.Wait()
			for end := false; errs[i] == nil && !end; {
				event, err := s.Next(ctx, sessions[i])
				if errs[i] = err; err != nil {
					return
				}
				said[i].text += event.Text
				if end = event.End; end {
					errs[i] = event.Err
					said[i].result = stasis.GenerateResult{StopReason: event.StopReason,
						Begin: event.Begin, Count: event.Count}
				} else if len(event.Best) != 2 || event.Session != sessions[i] {
					errs[i] = errors.New("not the event that was asked for")
				}
			}
		}()
	}
	group.Wait()
	for i := range said {
		ok(t, errs[i])
		equal(t, said[i].text, expected.text)
		equal(t, said[i].result.Count, expected.result.Count)
		equal(t, said[i].result.Begin, expected.result.Begin)
		equal(t, said[i].result.StopReason, expected.result.StopReason)
		equal(t, digest(t, sessions[i]), expected.digest)
	}
	stats := must(s.Stats())(t)
	equal(t, stats.Sessions, 0)
	equal(t, stats.Tokens, expected.result.Count*uint64(len(said)))
	if stats.MostTogether < 2 || stats.PassMax <= 0 {
		t.Fatal("nothing was computed together: ", stats)
	}
}

func TestSchedulerAny(t *testing.T) {
	m := model(t, plain)
	s := scheduler(t, m, nil)
	sessions := map[*stasis.Session]int{}
	for i := 0; i < 5; i++ {
		session := sessionOf(t, m, someTokens(20, uint32(i)))
		ok(t, s.Submit(session, &stasis.GenerateOptions{TokensMax: uint64(3 + i), IgnoreEnd: true},
			&stasis.SchedulerPrompt{Tokens: someTokens(30, 7)}))
		sessions[session] = 3 + i
	}
	for left := len(sessions); left > 0; {
		event := must(s.Next(background, nil))(t)
		if event.End {
			ok(t, event.Err)
			left--
		} else {
			sessions[event.Session]--
		}
	}
	for session, left := range sessions {
		equal(t, left, 0)
		ok(t, session.Append(background, someTokens(1, 1), nil)) // free
	}
}

func TestSchedulerConversation(t *testing.T) {
	m := model(t, llama)
	s := scheduler(t, m, &stasis.SchedulerOptions{Slice: 16})
	options := &stasis.GenerateOptions{TokensMax: 12}
	session := private(t, m)
	run := func(conversation string) error {
		err := s.Submit(session, options, &stasis.SchedulerPrompt{Conversation: conversation})
		for end := err != nil; !end; {
			event := must(s.Next(background, session))(t)
			end = event.End
			ok(t, event.Err)
		}
		return err
	}
	alone := func(conversation string) stasis.Digest {
		session := private(t, m)
		must(session.AppendChat(background, conversation, stasis.ChatReply, nil))(t)
		must(session.Generate(background, options, nil))(t)
		return digest(t, session)
	}
	first := `{"messages": [{"role": "user", "content": "Let's define k as 5. What is k?"}]}`
	other := `{"messages": [{"role": "user", "content": "Bye."}]}`
	ok(t, run(first))
	before := digest(t, session)
	equal(t, before, alone(first))
	refused(t, run(other), stasis.ErrConflict)
	equal(t, digest(t, session), before)
	_, differs := mustBoth(session.ChatTokens(other, stasis.ChatReply))(t)
	ok(t, session.Rewind(background, differs, 0, nil))
	ok(t, run(other))
	equal(t, digest(t, session), alone(other))
	refused(t, run("["), stasis.ErrInvalidArgument, "conversation")
	refused(t, s.Submit(session, nil, &stasis.SchedulerPrompt{Message: greeting,
		Conversation: other}), stasis.ErrInvalidArgument, "more than one")
}

func TestSchedulerEnds(t *testing.T) {
	m := model(t, plain)
	s := scheduler(t, m, nil)
	session := sessionOf(t, m, someTokens(20, 1))
	before := digest(t, session)
	ok(t, s.Submit(session, nil, &stasis.SchedulerPrompt{Tokens: someTokens(30, 7)}))
	refused(t, session.Append(background, someTokens(1, 1), nil), stasis.ErrBusy, "scheduler")
	refused(t, s.Submit(session, nil, nil), stasis.ErrBusy)
	ok(t, s.Cancel(session))
	event := must(s.Next(background, session))(t)
	equal(t, event.End, true)
	refused(t, event.Err, stasis.ErrCancelled)
	equal(t, digest(t, session), before)
	_, err := s.Next(background, session)
	refused(t, err, stasis.ErrNotFound)
	refused(t, s.Cancel(session), stasis.ErrNotFound)
	refused(t, s.Submit(private(t, m), nil, nil), stasis.ErrNotFound)
	foreign := private(t, model(t, local))
	refused(t, s.Submit(foreign, nil, &stasis.SchedulerPrompt{Tokens: someTokens(3, 1)}),
		stasis.ErrInvalidArgument, "another model")

	// Nothing comes: the context ends the wait.
	ctx, cancel := context.WithTimeout(background, 30*time.Millisecond)
	defer cancel()
	_, err = s.Next(ctx, nil)
	refused(t, err, stasis.ErrCancelled)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}

	// A session that is closed goes on, and a scheduler that is closed lets go.
	ok(t, s.Submit(session, &stasis.GenerateOptions{TokensMax: 3, IgnoreEnd: true}, nil))
	ok(t, session.Close())
	equal(t, must(s.Next(background, nil))(t).End, false)
	other := sessionOf(t, m, someTokens(20, 2))
	ok(t, s.Submit(other, nil, nil))
	waiting := make(chan error)
	go func() {
		var err error
		for err == nil {
			_, err = s.Next(background, other)
		}
		waiting <- err
	}()
	time.Sleep(5 * time.Millisecond)
	ok(t, s.Close())
	if err := <-waiting; err == nil {
		t.Fatal("Next went on")
	}
	ok(t, other.Append(background, someTokens(1, 1), nil))
	ok(t, s.Close())
	if err := s.Submit(other, nil, nil); err == nil {
		t.Fatal("a closed scheduler took a session")
	}
}
