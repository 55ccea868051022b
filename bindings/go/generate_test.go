// Generation: with a function, and as an iterator, which must be the same.

package stasis_test

import (
	"context"
	"errors"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	stasis "stasis.example/stasis.git/bindings/go"
)

const question = "Let's start by defining a variable k equal to 5. What is k?"

// asked is a session that a reply is expected from.
func asked(t testing.TB, name string) *stasis.Session {
	t.Helper()
	session := private(t, model(t, name))
	ok(t, session.AppendMessage(background, stasis.Message{Role: "user", Text: question},
		stasis.MessageReply, nil))
	return session
}

// generate collects what the function was given.
func generate(t testing.TB, session *stasis.Session,
	options *stasis.GenerateOptions) ([]stasis.Generated, stasis.GenerateResult) {
	t.Helper()
	var all []stasis.Generated
	result, err := session.Generate(background, options, func(g stasis.Generated) error {
		all = append(all, g)
		return nil
	})
	ok(t, err)
	return all, result
}

func textOf(all []stasis.Generated) string {
	var text strings.Builder
	for _, generated := range all {
		text.WriteString(generated.Text)
	}
	return text.String()
}

func TestGenerate(t *testing.T) {
	session := asked(t, llama)
	begin := position(t, session)
	all, result := generate(t, session, nil)
	equal(t, textOf(all), "k is 5.")
	equal(t, result.StopReason, stasis.StopEndToken)
	equal(t, result.Begin, begin)
	equal(t, result.Count, uint64(len(all)))
	equal(t, result.Passes, result.Count)
	equal(t, all[0].Position, begin)
	equal(t, position(t, session), begin+result.Count)
	equal(t, must(session.Text(begin, begin+result.Count))(t), "k is 5.")

	again := asked(t, llama)
	result = must(again.Generate(background, nil, nil))(t)
	equal(t, result.Count, uint64(len(all)))
	equal(t, digest(t, again), digest(t, session))
}

// endings are options that end generation in every possible way.
func endings() map[string]*stasis.GenerateOptions {
	return map[string]*stasis.GenerateOptions{
		"end":           nil,
		"length":        {TokensMax: 3},
		"on and on":     {TokensMax: 20, IgnoreEnd: true},
		"stop token":    {StopTokens: []stasis.Token{2, 264}},
		"stop string":   {StopStrings: []string{"nothing like it", "is 5"}},
		"held back":     {StopStrings: []string{"5. Is it?"}},
		"probabilities": {TokensMax: 3, LogProbabilities: 4},
	}
}

func TestGenerateEndings(t *testing.T) {
	texts := map[string]string{"end": "k is 5.", "length": "k is ", "stop token": "k",
		"stop string": "k ", "held back": "k is 5.", "probabilities": "k is "}
	reasons := map[string]stasis.StopReason{"end": stasis.StopEndToken,
		"stop token": stasis.StopEndToken, "stop string": stasis.StopString,
		"held back": stasis.StopEndToken}
	for name, options := range endings() {
		all, result := generate(t, asked(t, llama), options)
		if text, known := texts[name]; known && textOf(all) != text {
			t.Errorf("%s: %q, expected %q", name, textOf(all), text)
		}
		equal(t, result.StopReason, reasons[name])
		equal(t, all[len(all)-1].Last, name == "held back")
		if name == "probabilities" {
			for _, generated := range all {
				equal(t, len(generated.Best), 4)
				equal(t, generated.Best[0].Token, generated.Token) // greedy
				equal(t, generated.Best[0].LogProbability, generated.LogProbability)
			}
		}
	}
}

func TestGenerationIsGenerate(t *testing.T) {
	for name, options := range endings() {
		session := asked(t, llama)
		expected, expectedResult := generate(t, session, options)
		iterated := asked(t, llama)
		generation := iterated.Generation(background, options)
		var all []stasis.Generated
		for generation.Next() {
			equal(t, generation.Token(), generation.Generated().Token)
			equal(t, generation.Text(), generation.Generated().Text)
			all = append(all, generation.Generated())
		}
		ok(t, generation.Err())
		if !reflect.DeepEqual(all, expected) {
			t.Errorf("%s: %v, expected %v", name, all, expected)
		}
		equal(t, generation.Result(), expectedResult)
		equal(t, generation.Next(), false)
		ok(t, generation.Close())
		equal(t, digest(t, iterated), digest(t, session))
	}
}

func TestGenerationStoppedEarly(t *testing.T) {
	session := asked(t, llama)
	begin := position(t, session)
	generation := session.Generation(background, &stasis.GenerateOptions{IgnoreEnd: true})
	equal(t, generation.Next() && generation.Next(), true)
	refused(t, session.Append(background, []stasis.Token{1}, nil), stasis.ErrBusy)
	_, err := session.Decode()
	refused(t, err, stasis.ErrBusy)
	ok(t, generation.Close())
	ok(t, generation.Close())
	ok(t, generation.Err())
	equal(t, generation.Next(), false)
	equal(t, generation.Result().Count, 2)
	equal(t, generation.Result().StopReason, stasis.StopCallback)
	equal(t, position(t, session), begin+2) // what was delivered, and no more
	expected := asked(t, llama)
	generate(t, expected, &stasis.GenerateOptions{TokensMax: 2})
	equal(t, digest(t, session), digest(t, expected))

	never := session.Generation(background, nil)
	ok(t, never.Close())
	equal(t, never.Next(), false)
	equal(t, position(t, session), begin+2)
}

func TestGenerationFails(t *testing.T) {
	empty := private(t, model(t, llama))
	generation := empty.Generation(background, nil)
	equal(t, generation.Next(), false)
	refused(t, generation.Err(), stasis.ErrNotFound)
	refused(t, generation.Close(), stasis.ErrNotFound)
	for _, options := range []*stasis.GenerateOptions{{StopStrings: []string{""}},
		{StopStrings: []string{"a\x00"}}, {LogProbabilities: -1}, {LogProbabilities: 1 << 20}} {
		_, err := asked(t, llama).Generate(background, options, nil)
		refused(t, err, stasis.ErrInvalidArgument)
	}
}

// Between two tokens the session is whole: what has been delivered, and no more.
func TestGenerationBetweenTokens(t *testing.T) {
	for _, draft := range []*stasis.Model{nil, model(t, llama)} {
		session, stepped := asked(t, llama), asked(t, llama)
		ok(t, session.SetDraft(draft, &stasis.DraftOptions{TokensMin: 3, TokensMax: 3}))
		generation := session.Generation(background, &stasis.GenerateOptions{TokensMax: 12,
			IgnoreEnd: true})
		for generation.Next() {
			equal(t, generation.Token(), must(stepped.Decode())(t))
			equal(t, position(t, session), position(t, stepped))
			equal(t, digest(t, session), digest(t, stepped))
			child := must(session.Fork())(t)
			equal(t, must(child.Decode())(t), must(must(stepped.Fork())(t).Decode())(t))
		}
		ok(t, generation.Close())
		equal(t, generation.Result().Count, 12)
		equal(t, digest(t, session), digest(t, stepped))
	}
}

// What is held back when the context is done comes before the error.
func TestGenerationCancelledShowsWhatIsHeldBack(t *testing.T) {
	ctx, cancel := context.WithCancel(background)
	session := asked(t, llama)
	generation := session.Generation(ctx, &stasis.GenerateOptions{
		StopStrings: []string{"k is 5. Is it?"}})
	for i := 0; i < 3; i++ {
		equal(t, generation.Next(), true)
		equal(t, generation.Text(), "")
	}
	cancel()
	equal(t, generation.Next(), true)
	equal(t, generation.Generated().Last, true)
	equal(t, generation.Text(), "k is ")
	equal(t, generation.Next(), false)
	refused(t, generation.Err(), stasis.ErrCancelled)
	equal(t, generation.Result().Count, 3)
}

// A session that is closed meanwhile is freed when its generation is over.
func TestGenerationOfAClosedSession(t *testing.T) {
	m := must(stasis.Open(background, data+llama, nil))(t)
	defer m.Close()
	session := must(m.NewSession(nil))(t)
	ok(t, session.Append(background, someTokens(5, 1), nil))
	generation := session.Generation(background, &stasis.GenerateOptions{TokensMax: 3,
		IgnoreEnd: true})
	equal(t, generation.Next(), true)
	ok(t, session.Close())
	for generation.Next() {
	}
	ok(t, generation.Close())
	equal(t, generation.Result().Count, 3)
	nothingLeft(t, m)
	never := session.Generation(background, nil)
	equal(t, never.Next(), false)
	equal(t, errors.Is(never.Err(), os.ErrClosed), true)
}

func TestNoGoroutineForAGeneration(t *testing.T) {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	before := runtime.NumGoroutine()
	generation := asked(t, llama).Generation(ctx, nil)
	equal(t, generation.Next(), true)
	for attempt := 0; runtime.NumGoroutine() > before; attempt++ { // that of Next is leaving
		if attempt == 1000 {
			t.Fatal("a goroutine waits between two tokens")
		}
		time.Sleep(time.Millisecond)
	}
	ok(t, generation.Close())
}

// Tokens of a generation give its texts and its end, whatever ends it.
func TestTextStream(t *testing.T) {
	m := model(t, llama)
	for name, options := range endings() {
		if name == "probabilities" {
			_, err := m.TextStream(options)
			refused(t, err, stasis.ErrInvalidArgument)
			continue
		}
		expected, result := generate(t, asked(t, llama), options)
		stream := must(m.TextStream(options))(t)
		for i, generated := range expected {
			var piece stasis.Piece
			if generated.Last {
				piece = must(stream.Finish())(t)
			} else {
				piece = must(stream.Push(generated.Token))(t)
			}
			equal(t, piece.Text, generated.Text)
			last := generated.Last || i+1 == len(expected) || expected[i+1].Last
			equal(t, piece.Stopped, last)
			if last {
				equal(t, piece.StopReason, result.StopReason)
			}
		}
		ok(t, stream.Close())
		_, err := stream.Push(1)
		equal(t, errors.Is(err, os.ErrClosed), true)
	}
	stream := must(m.TextStream(nil))(t)
	_, err := stream.Push(1 << 30)
	refused(t, err, stasis.ErrInvalidArgument)
	_, err = m.TextStream(&stasis.GenerateOptions{StopStrings: []string{""}})
	refused(t, err, stasis.ErrInvalidArgument)
	_, err = model(t, plain).TextStream(&stasis.GenerateOptions{StopStrings: []string{"a"}})
	refused(t, err, stasis.ErrUnsupported)
}

// Nobody closes it: the garbage collector does.
func TestGenerationForgotten(t *testing.T) {
	session := asked(t, llama)
	func() {
		generation := session.Generation(background, &stasis.GenerateOptions{IgnoreEnd: true})
		equal(t, generation.Next(), true)
	}()
	free(t, session)
}

// free waits until a session may be changed again.
func free(t *testing.T, session *stasis.Session) {
	t.Helper()
	for attempt := 0; attempt < 10000; attempt++ {
		runtime.GC()
		if err := session.SetSampling(nil); err == nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the session is busy for good")
}

func TestGenerationCancelledWhileNobodyAsks(t *testing.T) {
	session := asked(t, llama)
	ctx, cancel := context.WithCancel(background)
	generation := session.Generation(ctx, &stasis.GenerateOptions{IgnoreEnd: true})
	equal(t, generation.Next(), true)
	cancel()
	for generation.Next() {
		t.Fatal("a token after the context was done")
	}
	refused(t, generation.Err(), stasis.ErrCancelled)
	equal(t, errors.Is(generation.Err(), context.Canceled), true)
	equal(t, generation.Result().StopReason, stasis.StopCancelled)
	equal(t, generation.Result().Count, 1)
	ok(t, session.SetSampling(nil)) // not busy
}

func TestGenerateStoppedByAnError(t *testing.T) {
	session := asked(t, llama)
	enough := errors.New("enough")
	count := 0
	result, err := session.Generate(background, nil, func(stasis.Generated) error {
		if count++; count == 3 {
			return enough
		}
		return nil
	})
	refused(t, err, stasis.ErrStopped, "enough")
	equal(t, errors.Is(err, enough), true)
	equal(t, result.Count, 3)
	equal(t, result.StopReason, stasis.StopCallback)
}

func TestDraft(t *testing.T) {
	expected, _ := generate(t, asked(t, llama), &stasis.GenerateOptions{TokensMax: 60,
		IgnoreEnd: true})
	for _, draft := range []*stasis.Model{nil, model(t, llama)} {
		session := asked(t, llama)
		ok(t, session.SetDraft(draft, &stasis.DraftOptions{TokensMin: 3, TokensMax: 3}))
		generation := session.Generation(background, &stasis.GenerateOptions{TokensMax: 60,
			IgnoreEnd: true})
		for _, generated := range expected {
			equal(t, generation.Next(), true)
			equal(t, generation.Token(), generated.Token)
		}
		ok(t, generation.Close())
		equal(t, generation.Result().Drafted > 0, true)
		equal(t, generation.Result().Passes < generation.Result().Count, true)
		ok(t, session.SetDraft(nil, nil))
	}
	session := asked(t, llama)
	refused(t, session.SetDraft(model(t, plain), nil), stasis.ErrModelMismatch)
	refused(t, session.SetDraft(nil, &stasis.DraftOptions{TokensMax: 100}),
		stasis.ErrInvalidArgument)
}
