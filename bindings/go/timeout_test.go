// The time of calls. Callbacks wait until it is over, so that nothing depends on the machine.

package stasis_test

import (
	"errors"
	"os"
	"testing"
	"time"

	stasis "stasis.example/stasis.git/bindings/go"
)

const limit = 5 * time.Millisecond

func TestAppendTimesOut(t *testing.T) {
	session := private(t, model(t, gemma))
	ok(t, session.Append(background, someTokens(300, 1), nil))
	before := must(session.Digest())(t)
	timed := stasis.RunOptions{Timeout: limit, Progress: func(done, total uint64) error {
		time.Sleep(limit + time.Millisecond)
		return nil
	}}
	err := session.Append(background, someTokens(300, 2), &timed)
	refused(t, err, stasis.ErrTimeout, "time was over")
	equal(t, errors.Is(err, os.ErrDeadlineExceeded), true)
	equal(t, must(session.Digest())(t), before)
	refused(t, session.Append(background, nil, &stasis.RunOptions{Timeout: -1}),
		stasis.ErrInvalidArgument, "Timeout")
	ok(t, session.Append(background, someTokens(3, 2), &stasis.RunOptions{Timeout: time.Hour}))
}

func TestGenerateTimesOut(t *testing.T) {
	session := private(t, model(t, gemma))
	ok(t, session.Append(background, someTokens(40, 1), nil))
	options := stasis.GenerateOptions{TokensMax: 1000, IgnoreEnd: true,
		Timeout: 2000 * time.Millisecond}
	result, err := session.Generate(background, &options, func(stasis.Generated) error {
		time.Sleep(2010 * time.Millisecond)
		return nil
	})
	refused(t, err, stasis.ErrTimeout)
	equal(t, result.StopReason, stasis.StopTimeout)
	equal(t, result.Count, 1)
	generation := session.Generation(background, &options)
	tokens := uint64(0)
	for generation.Next() {
		if !generation.Generated().Last {
			tokens++
		}
		time.Sleep(700 * time.Millisecond)
	}
	refused(t, generation.Err(), stasis.ErrTimeout)
	equal(t, tokens >= 1 && tokens <= 3, true)
	equal(t, generation.Result().StopReason, stasis.StopTimeout)
	equal(t, must(session.Info())(t).Position, 41+tokens)
}

func TestScheduledSessionTimesOut(t *testing.T) {
	m := model(t, gemma)
	late, other := private(t, m), private(t, m)
	scheduler := must(m.NewScheduler(nil))(t)
	defer scheduler.Close()
	prompt := stasis.SchedulerPrompt{Tokens: someTokens(20, 1)}
	ok(t, scheduler.Submit(late, &stasis.GenerateOptions{TokensMax: 5, Timeout: limit}, &prompt))
	ok(t, scheduler.Submit(other, &stasis.GenerateOptions{TokensMax: 5, IgnoreEnd: true}, &prompt))
	time.Sleep(limit + time.Millisecond)
	for ended := 0; ended < 2; {
		event := must(scheduler.Next(background, nil))(t)
		if !event.End {
			continue
		}
		ended++
		if event.Session == late {
			refused(t, event.Err, stasis.ErrTimeout)
			equal(t, event.StopReason, stasis.StopTimeout)
		} else {
			ok(t, event.Err)
			equal(t, event.Count, 5)
		}
	}
	equal(t, must(late.Info())(t).Position, 0)
}
