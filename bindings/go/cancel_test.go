// Contexts, and functions of the host that fail: calls end, and objects are as they were.

package stasis_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

// done is a context that is.
func done() context.Context {
	ctx, cancel := context.WithCancel(background)
	cancel()
	return ctx
}

// longCalls are all that take a context, each with the progress function of its options where it
// has one.
func longCalls(t *testing.T, session *stasis.Session) map[string]func(context.Context,
	func(done, total uint64) error) error {
	m := model(t, llama)
	path := saved(t, m, someTokens(300, 2))
	snapshot := must(stasis.OpenSnapshot(path))(t)
	t.Cleanup(func() { snapshot.Close() })
	var stream bytes.Buffer
	ok(t, session.Write(background, &stream, nil))
	type progress = func(done, total uint64) error
	type calls = map[string]func(context.Context, progress) error
	tokens := someTokens(300, 9)
	return calls{
		"open": func(ctx context.Context, p progress) error {
			_, err := stasis.Open(ctx, data+llama, &stasis.ModelOptions{Progress: p})
			return err
		},
		"append": func(ctx context.Context, p progress) error {
			return session.Append(ctx, tokens, &stasis.RunOptions{Chunk: 16, Progress: p})
		},
		"score": func(ctx context.Context, p progress) error {
			_, err := session.Score(ctx, tokens, &stasis.RunOptions{Chunk: 16, Progress: p})
			return err
		},
		"step": func(ctx context.Context, p progress) error {
			items := []stasis.StepItem{{Session: session, Tokens: tokens, Sample: true}}
			err := stasis.Step(ctx, items, &stasis.RunOptions{Chunk: 16, Progress: p})
			if err != nil && items[0].Err == nil && ctx.Err() == nil {
				t.Error("the item knows nothing of", err)
			}
			return err
		},
		"save": func(ctx context.Context, p progress) error {
			return session.Save(ctx, filepath.Join(t.TempDir(), "a"),
				&stasis.SaveOptions{Progress: p})
		},
		"write": func(ctx context.Context, p progress) error {
			return session.Write(ctx, io.Discard, &stasis.SaveOptions{Progress: p})
		},
		"load": func(ctx context.Context, p progress) error {
			_, err := m.Load(ctx, path, &stasis.LoadOptions{Progress: p})
			return err
		},
		"read": func(ctx context.Context, p progress) error {
			_, err := m.Read(ctx, bytes.NewReader(stream.Bytes()),
				&stasis.LoadOptions{Progress: p})
			return err
		},
		"verify": func(ctx context.Context, p progress) error {
			_, err := snapshot.Verify(ctx, m, &stasis.VerifyOptions{Progress: p, Chunk: 16})
			return err
		},
		"compact": func(ctx context.Context, p progress) error {
			return stasis.Compact(ctx, path, &stasis.SaveOptions{Progress: p})
		},
		"embed": func(ctx context.Context, p progress) error {
			_, err := m.EmbedTokens(ctx, [][]stasis.Token{tokens}, &stasis.EmbedOptions{Chunk: 16,
				Pooling: stasis.PoolingMean, Progress: p})
			return err
		},
		"quantize": func(ctx context.Context, p progress) error {
			_, err := stasis.Quantize(ctx, data+llama, filepath.Join(t.TempDir(), "a.gguf"),
				&stasis.QuantizeOptions{Progress: p})
			return err
		},
	}
}

// longCallsOfStores are those of a store.
func longCallsOfStores(t *testing.T, session *stasis.Session) map[string]func(context.Context,
	func(done, total uint64) error) error {
	m := model(t, llama)
	path := saved(t, m, someTokens(300, 2))
	store := must(stasis.OpenStore("dir:"+t.TempDir(), nil))(t)
	t.Cleanup(func() { store.Close() })
	must(store.Put(background, session, "here", nil))(t)
	other := sessionOf(t, m, someTokens(300, 3))
	type progress = func(done, total uint64) error
	return map[string]func(context.Context, progress) error{
		"put": func(ctx context.Context, p progress) error {
			_, err := store.Put(ctx, other, "there", &stasis.StoreCallOptions{Progress: p})
			return err
		},
		"get": func(ctx context.Context, p progress) error {
			_, err := store.Get(ctx, m, "here", &stasis.LoadOptions{Progress: p})
			return err
		},
		"import": func(ctx context.Context, p progress) error {
			_, err := store.Import(ctx, path, "there", &stasis.StoreCallOptions{Progress: p})
			return err
		},
	}
}

func TestLongCallsEndWithTheirContext(t *testing.T) {
	session := sessionOf(t, model(t, llama), someTokens(100, 1))
	before := digest(t, session)
	calls := longCalls(t, session)
	for name, call := range longCallsOfStores(t, session) {
		calls[name] = call
	}
	for name, call := range calls {
		err := call(done(), nil)
		refused(t, err, stasis.ErrCancelled)
		equal(t, errors.Is(err, context.Canceled), true)

		ctx, cancel := context.WithCancel(background)
		begun := false
		err = call(ctx, func(done, total uint64) error {
			if !begun && done < total {
				begun = true
				cancel()
			}
			return nil
		})
		cancel()
		if !begun {
			t.Errorf("%s reports no progress before its end", name)
		}
		if !errors.Is(err, stasis.ErrCancelled) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s, cancelled on the way: %v", name, err)
		}
		equal(t, digest(t, session), before)
	}
	ctx, cancel := context.WithTimeout(background, 0)
	defer cancel()
	err := session.Append(ctx, someTokens(5, 1), nil)
	refused(t, err, stasis.ErrCancelled)
	equal(t, errors.Is(err, context.DeadlineExceeded), true)
}

func TestLongCallsEndWithTheirProgress(t *testing.T) {
	session := sessionOf(t, model(t, llama), someTokens(100, 1))
	before := digest(t, session)
	enough := errors.New("enough")
	for name, call := range longCalls(t, session) {
		err := call(background, func(uint64, uint64) error { return enough })
		if !errors.Is(err, stasis.ErrStopped) || !errors.Is(err, enough) {
			t.Errorf("%s: %v", name, err)
		}
		func() {
			defer func() {
				if value := recover(); value != "what a host did wrong" {
					t.Errorf("%s: recovered %v", name, value)
				}
			}()
			call(background, func(uint64, uint64) error { panic("what a host did wrong") })
		}()
		equal(t, digest(t, session), before) // neither busy nor changed
	}
}

// From another goroutine, while the call runs and calls nobody back.
func TestAppendCancelledFromElsewhere(t *testing.T) {
	session := sessionOf(t, model(t, gemma), someTokens(10, 1))
	before := digest(t, session)
	for attempt := 0; attempt < 100; attempt++ { // it may have ended before it could be cancelled
		ctx, cancel := context.WithCancel(background)
		over, gone := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(gone)
			for err := error(nil); !errors.Is(err, stasis.ErrBusy); _, err = session.Info() {
				select {
				case <-over:
					return
				default:
				}
			}
			cancel()
		}()
		err := session.Append(ctx, someTokens(3000, 1), nil)
		close(over)
		<-gone
		cancel()
		if err == nil {
			ok(t, session.Rewind(background, 0, 0, nil))
			ok(t, session.Append(background, someTokens(10, 1), nil))
		} else if !errors.Is(err, stasis.ErrBusy) { // Info was there first
			refused(t, err, stasis.ErrCancelled, "cancelled by the caller at")
			equal(t, errors.Is(err, context.Canceled), true)
			equal(t, digest(t, session), before)
			return
		}
	}
	t.Fatal("never cancelled")
}

func TestGenerateCancelled(t *testing.T) {
	session := asked(t, llama)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	count := 0
	result, err := session.Generate(ctx, &stasis.GenerateOptions{IgnoreEnd: true},
		func(stasis.Generated) error {
			if count++; count == 5 {
				cancel()
			}
			return nil
		})
	refused(t, err, stasis.ErrCancelled)
	equal(t, errors.Is(err, context.Canceled), true)
	equal(t, result.StopReason, stasis.StopCancelled)
	equal(t, result.Count, 5) // they stay
	expected := asked(t, llama)
	generate(t, expected, &stasis.GenerateOptions{TokensMax: 5, IgnoreEnd: true})
	equal(t, digest(t, session), digest(t, expected))
}

func TestPanicsOfCallbacks(t *testing.T) {
	session := asked(t, llama)
	before := digest(t, session)
	var stream bytes.Buffer
	ok(t, session.Write(background, &stream, nil))
	for what, call := range map[string]func(){
		"generate": func() {
			session.Generate(background, nil, func(stasis.Generated) error { panic(name(1)) })
		},
		"logits": func() {
			session.Append(background, someTokens(3, 1), &stasis.RunOptions{
				Logits: func(uint64, []float32) error { panic(name(1)) }})
		},
		"writer":   func() { session.Write(background, panicking{}, nil) },
		"reader":   func() { model(t, llama).Read(background, panicking{}, nil) },
		"snapshot": func() { stasis.ReadSnapshot(background, panicking{}) },
	} {
		func() {
			defer func() {
				if value := recover(); value != name(1) {
					t.Errorf("%s: recovered %v", what, value)
				}
			}()
			call()
		}()
	}
	equal(t, position(t, session), position(t, asked(t, llama))+1) // generate's token stays
	ok(t, session.Rewind(background, position(t, session)-1, 0, nil))
	equal(t, digest(t, session), before)
}

type name int

type panicking struct{}

func (panicking) Read([]byte) (int, error)  { panic(name(1)) }
func (panicking) Write([]byte) (int, error) { panic(name(1)) }

func TestReadSnapshotCancelled(t *testing.T) {
	var stream bytes.Buffer
	ok(t, sessionOf(t, model(t, llama), someTokens(100, 1)).Write(background, &stream, nil))
	ctx, cancel := context.WithCancel(background)
	reads := 0
	_, err := stasis.ReadSnapshot(ctx, readerFunc(func(into []byte) (int, error) {
		if reads++; reads == 2 {
			cancel()
		}
		if len(into) > 100 {
			into = into[:100]
		}
		return stream.Read(into)
	}))
	refused(t, err, stasis.ErrCancelled)
	equal(t, errors.Is(err, context.Canceled), true)
	equal(t, reads, 2)
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(into []byte) (int, error) { return f(into) }
