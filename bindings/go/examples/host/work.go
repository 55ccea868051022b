// The workload of the example: conversations in many sessions at once, and their repetition.

package main

import (
	"context"
	"fmt"
	"math/rand"
	"sync"
	"time"

	stasis "stasis.example/stasis.git/bindings/go"
)

// A script is what one session has been through, so that it can be played again.
type script struct {
	turns  int
	digest stasis.Digest // after the last one
	tokens uint64
	bytes  uint64 // of KV pages that only it held
}

// work is random conversations in many sessions at once.
type work struct {
	scripts    []script
	goroutines int
	turnsMax   int
	tokensMax  uint64 // of a reply
	capacity   uint64
}

func nameOf(i int) string {
	return fmt.Sprintf("session %d", i)
}

// say is what the user of session i says in a turn, always the same.
func say(i, turn int) string {
	letter := func(turn int) string { return string(rune('a' + (i+turn)%26)) }
	if turn == 0 {
		return fmt.Sprintf("Let's start by defining a variable %s equal to %d. What is %s?",
			letter(0), i%97+2, letter(0))
	}
	return fmt.Sprintf("Now set a new variable %s equal to %s multiplied by %d. What is %s?",
		letter(turn), letter(turn-1), i%7+2, letter(turn))
}

// turn plays one turn.
func (w *work) turn(ctx context.Context, session *stasis.Session, i, turn int) error {
	err := session.AppendMessage(ctx, stasis.Message{Role: "user", Text: say(i, turn)},
		stasis.MessageReply, nil)
	if err != nil {
		return err
	}
	_, err = session.Generate(ctx, &stasis.GenerateOptions{TokensMax: w.tokensMax}, nil)
	return err
}

// play gives every session a turn, and then sessions at random until the time is over. The first
// error ends it.
func (w *work) play(ctx context.Context, h *host, duration time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := time.Now().Add(duration)
	failures := make(chan error, w.goroutines)
	var group sync.WaitGroup
	for g := 0; g < w.goroutines; g++ {
		group.Add(1)
		go func(g int) {
			defer group.Done()
			if err := w.playSome(ctx, h, g, end); err != nil {
				failures <- err
				cancel()
			}
		}(g)
	}
	group.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

func (w *work) playSome(ctx context.Context, h *host, g int, end time.Time) error {
	chance := rand.New(rand.NewSource(int64(g)))
	for n := g; n < len(w.scripts) || time.Now().Before(end); n += w.goroutines {
		i := n
		if n >= len(w.scripts) {
			i = chance.Intn(len(w.scripts))
		}
		err := h.use(ctx, nameOf(i), func(session *stasis.Session) error {
			return w.next(ctx, session, i)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", nameOf(i), err)
		}
	}
	return nil
}

// next plays a session's next turn, if it has one, and takes down how it stands. The session's
// user is alone with its script.
func (w *work) next(ctx context.Context, session *stasis.Session, i int) (err error) {
	s := &w.scripts[i]
	if s.turns < w.turnsMax {
		if err := w.turn(ctx, session, i, s.turns); err != nil {
			return err
		}
		s.turns++
	}
	info, err := session.Info()
	if err != nil {
		return err
	}
	if pages := info.PagesOwn + info.PagesShared; pages > 0 {
		s.bytes = info.KVBytes / pages * info.PagesOwn
	}
	s.tokens = info.Position
	s.digest, err = session.Digest()
	return err
}

// resumedRight counts sessions that a host has as they were left.
func (w *work) resumedRight(ctx context.Context, h *host) (right int, err error) {
	for i, script := range w.scripts {
		err = h.use(ctx, nameOf(i), func(session *stasis.Session) error {
			digest, err := session.Digest()
			if digest == script.digest {
				right++
			}
			return err
		})
		if err != nil {
			return right, err
		}
	}
	return right, nil
}

// repeatedRight counts sessions with the same result when their scripts are played one after the
// other, with a model of their own: no host, no files, no forks, nothing shared.
func (w *work) repeatedRight(ctx context.Context, modelPath, system string) (right int, err error) {
	model, err := stasis.Open(ctx, modelPath, nil)
	if err != nil {
		return 0, err
	}
	defer model.Close()
	for i, script := range w.scripts {
		digest, err := w.repeat(ctx, model, system, i)
		if err != nil {
			return right, err
		}
		if digest == script.digest {
			right++
		}
	}
	return right, nil
}

func (w *work) repeat(ctx context.Context, model *stasis.Model, system string,
	i int) (digest stasis.Digest, err error) {
	session, err := model.NewSession(&stasis.SessionOptions{Capacity: w.capacity,
		Domain: stasis.DomainPrivate})
	if err != nil {
		return digest, err
	}
	defer session.Close()
	err = session.AppendMessage(ctx, stasis.Message{Role: "system", Text: system}, 0, nil)
	for turn := 0; turn < w.scripts[i].turns && err == nil; turn++ {
		err = w.turn(ctx, session, i, turn)
	}
	if err != nil {
		return digest, err
	}
	return session.Digest()
}
