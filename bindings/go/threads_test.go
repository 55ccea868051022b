// Many goroutines: one model for all, BUSY for the second on a session, closing while calls run,
// and nothing left at the end. Most telling under the race detector.

package stasis_test

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

// together runs a function in so many goroutines and waits for them.
func together(count int, body func(i int)) {
	var group sync.WaitGroup
	for i := 0; i < count; i++ {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			body(i)
		}(i)
	}
	group.Wait()
}

func TestSessionsOfOneModelAtTheSameTime(t *testing.T) {
	m := model(t, llama)
	var got, expected [16]stasis.Digest
	run := func(i int) stasis.Digest {
		session := must(m.NewSession(&stasis.SessionOptions{Domain: uint64(i % 2)}))(t)
		defer session.Close()
		for part := 0; part < 4; part++ {
			if err := session.Append(background, someTokens(20, uint32(i+part)), nil); err != nil {
				t.Error(err)
			}
			if _, err := session.Generate(background, &stasis.GenerateOptions{TokensMax: 5,
				IgnoreEnd: true}, nil); err != nil {
				t.Error(err)
			}
		}
		digest, err := session.Digest()
		if err != nil {
			t.Error(err)
		}
		return digest
	}
	together(len(got), func(i int) { got[i] = run(i) })
	for i := range expected {
		expected[i] = run(i)
	}
	equal(t, got, expected)
}

// Every call either does all it says or is refused as BUSY: what was appended adds up.
func TestOneSessionInManyGoroutines(t *testing.T) {
	session := private(t, model(t, plain))
	var appended, busy, other atomic.Int64
	together(8, func(int) {
		for i := 0; i < 200; i++ {
			err := session.Append(background, someTokens(1, 1), nil)
			if err == nil {
				appended.Add(1)
			} else if errors.Is(err, stasis.ErrBusy) {
				busy.Add(1)
			} else {
				other.Add(1)
			}
			if _, err := session.Info(); err != nil && !errors.Is(err, stasis.ErrBusy) {
				other.Add(1)
			}
		}
	})
	equal(t, other.Load(), 0)
	equal(t, appended.Load()+busy.Load(), 1600)
	equal(t, position(t, session), uint64(appended.Load()))
	equal(t, digest(t, session),
		digest(t, sessionOf(t, model(t, plain), repeated(someTokens(1, 1)[0], appended.Load()))))
}

func repeated(token stasis.Token, count int64) []stasis.Token {
	tokens := make([]stasis.Token, count)
	for i := range tokens {
		tokens[i] = token
	}
	return tokens
}

func TestCloseWhileCallsRun(t *testing.T) {
	m := must(stasis.Open(background, data+llama, nil))(t)
	for round := 0; round < 50; round++ {
		session := must(m.NewSession(nil))(t)
		ok(t, session.Append(background, someTokens(2, 1), nil))
		together(6, func(i int) {
			var err error
			switch i {
			case 0:
				err = session.Close()
			case 1:
				_, err = session.Generate(background, &stasis.GenerateOptions{TokensMax: 20}, nil)
			case 2:
				_, err = session.Digest()
			case 3:
				child, forked := session.Fork()
				if err = forked; err == nil {
					err = child.Close()
				}
			case 4:
				generation := session.Generation(background, nil)
				for n := 0; n < 3 && generation.Next(); n++ {
				}
				err = generation.Close()
			case 5:
				err = session.Close()
			}
			if err != nil && !errors.Is(err, os.ErrClosed) && !errors.Is(err, stasis.ErrBusy) {
				t.Error(i, err)
			}
		})
	}
	nothingLeft(t, m)
	ok(t, m.Close())
}

// A call that runs when its session is closed continues to its end.
func TestCloseFromACallback(t *testing.T) {
	m := must(stasis.Open(background, data+llama, nil))(t)
	defer m.Close()
	session := must(m.NewSession(nil))(t)
	ok(t, session.Append(background, someTokens(5, 1), nil))
	result, err := session.Generate(background, &stasis.GenerateOptions{TokensMax: 4,
		IgnoreEnd: true}, func(stasis.Generated) error { return session.Close() })
	ok(t, err)
	equal(t, result.Count, 4)
	nothingLeft(t, m)
}

// nothingLeft checks that no session of a model holds a page.
func nothingLeft(t *testing.T, m *stasis.Model) {
	t.Helper()
	stats := must(m.Stats())(t)
	equal(t, stats.KVUsed, 0)
	equal(t, stats.KVShared, 0)
}

func TestNothingIsLeft(t *testing.T) {
	m := must(stasis.Open(background, data+gemma, nil))(t)
	defer m.Close()
	nothingLeft(t, m)
	path := t.TempDir() + "/a.stasis"
	var sessions []*stasis.Session
	for i := 0; i < 10; i++ {
		session := must(m.NewSession(nil))(t)
		ok(t, session.Append(background, someTokens(200, uint32(i/2)), nil))
		child := must(session.Fork())(t)
		ok(t, child.Append(background, someTokens(100, 1), nil))
		ok(t, child.Save(background, path, &stasis.SaveOptions{Replace: true}))
		loaded := must(m.Load(background, path, nil))(t)
		sessions = append(sessions, session, child, loaded)
	}
	equal(t, must(m.Stats())(t).KVUsed > 0, true)
	together(len(sessions), func(i int) { sessions[i].Close() })
	nothingLeft(t, m)
}

// In the function of Generate, and in other goroutines whatever it does: each answer is that of a
// session which was given the same tokens alone.
func TestSessionIsReadWhileItGenerates(t *testing.T) {
	session := asked(t, llama)
	plain := must(session.Fork())(t)
	after := map[stasis.Digest]uint64{digest(t, plain): position(t, plain)}
	for i := 0; i < 40; i++ {
		must(plain.Decode())(t)
		after[digest(t, plain)] = position(t, plain)
	}
	var read, wrong atomic.Int64
	look := func(expected uint64) {
		value, err := session.Digest()
		at, known := after[value]
		if err != nil || !known || (expected != 0 && at != expected) {
			wrong.Add(1)
		}
		if info, err := session.Info(); err != nil || info.Position < at {
			wrong.Add(1)
		}
		read.Add(1)
	}
	over := make(chan struct{})
	var group sync.WaitGroup
	for i := 0; i < 2; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for {
				select {
				case <-over:
					return
				default:
					look(0)
				}
			}
		}()
	}
	for read.Load() < 3 { // before it begins
		runtime.Gosched()
	}
	_, err := session.Generate(background, &stasis.GenerateOptions{TokensMax: 20, IgnoreEnd: true},
		func(generated stasis.Generated) error {
			look(generated.Position + 1)
			return nil
		})
	ok(t, err)
	generation := session.Generation(background,
		&stasis.GenerateOptions{TokensMax: 20, IgnoreEnd: true})
	for generation.Next() {
		look(generation.Generated().Position + 1)
	}
	ok(t, generation.Err())
	close(over)
	group.Wait()
	equal(t, wrong.Load(), 0)
	equal(t, read.Load() > 42, true)
	equal(t, digest(t, session), digest(t, plain))
}
