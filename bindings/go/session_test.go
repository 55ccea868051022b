// Sessions: what changes them, and what they report.

package stasis_test

import (
	"math"
	"reflect"
	"strings"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

func TestAppendIsTheSameHoweverItIsCut(t *testing.T) {
	tokens := someTokens(150, 1)
	whole := digest(t, sessionOf(t, model(t, local), tokens))
	cut := private(t, model(t, local))
	for _, range_ := range [][2]int{{0, 1}, {1, 1}, {1, 64}, {64, 150}} {
		ok(t, cut.Append(background, tokens[range_[0]:range_[1]], &stasis.RunOptions{Chunk: 7}))
	}
	equal(t, digest(t, cut), whole)
}

func TestRunOptions(t *testing.T) {
	session := private(t, model(t, plain))
	var positions []uint64
	var done, total uint64
	var last []float32
	ok(t, session.Append(background, someTokens(20, 1), &stasis.RunOptions{Chunk: 6,
		Progress: func(d, t uint64) error {
			done, total = d, t
			return nil
		},
		Logits: func(position uint64, logits []float32) error {
			positions = append(positions, position)
			last = append(last[:0], logits...)
			return nil
		}}))
	equal(t, done, 20)
	equal(t, total, 20)
	equal(t, len(positions), 20)
	equal(t, positions[19], 19)
	logits := must(session.Logits())(t)
	equal(t, len(logits), must(model(t, plain).Info())(t).Vocabulary)
	for i := range logits {
		equal(t, math.Float32bits(logits[i]), math.Float32bits(last[i]))
	}
}

func TestMessages(t *testing.T) {
	m := model(t, llama)
	session := private(t, m)
	ok(t, session.AppendMessage(background, stasis.Message{Role: "system", Text: "Be brief."}, 0,
		nil))
	ok(t, session.AppendMessage(background, stasis.Message{Role: "user", Text: "Hello?"},
		stasis.MessageReply, nil))
	tokens, sources := mustBoth(session.Tokens(0))(t)
	rendered := must(m.Render([]stasis.Message{{Role: "system", Text: "Be brief."},
		{Role: "user", Text: "Hello?"}}, stasis.RenderReply))(t)
	equal(t, must(m.Detokenize(tokens, stasis.DetokenizeSpecial))(t), rendered)
	equal(t, sources[0], stasis.SourceTemplate)
	text := 0
	for _, source := range sources {
		if source == stasis.SourceText {
			text++
		}
	}
	equal(t, text > 2 && text < len(sources), true)
	err := session.AppendMessage(background, stasis.Message{Role: "a\x00", Text: "b"}, 0, nil)
	refused(t, err, stasis.ErrInvalidArgument, "role")
	err = session.AppendMessage(background, stasis.Message{Role: "user", Text: "\xff"}, 0, nil)
	refused(t, err, stasis.ErrInvalidArgument)
	err = private(t, model(t, plain)).AppendMessage(background,
		stasis.Message{Role: "user", Text: "b"}, 0, nil)
	refused(t, err, stasis.ErrUnsupported)
}

func TestChat(t *testing.T) {
	m := model(t, llama)
	session := private(t, m)
	chat := `{"messages": [{"role": "user", "content": "Hello?"}]}`
	rendered := must(m.RenderChat(chat, stasis.ChatReply))(t)
	position := must(session.AppendChat(background, chat, stasis.ChatReply, nil))(t)
	tokens, _ := mustBoth(session.Tokens(0))(t)
	equal(t, position, uint64(len(tokens)))
	equal(t, must(m.Detokenize(tokens, stasis.DetokenizeSpecial))(t), rendered)
	equal(t, must(session.Reply("", false))(t), `{"role": "assistant", "content": ""}`)
	other := `{"messages": [{"role": "user", "content": "Bye."}]}`
	differs, err := session.AppendChat(background, other, stasis.ChatReply, nil)
	refused(t, err, stasis.ErrConflict, "position")
	equal(t, differs > 0 && differs < position, true)
	ok(t, session.Rewind(background, differs, 0, nil))
	must(session.AppendChat(background, other, stasis.ChatReply, nil))(t)
	_, err = m.RenderChat("{", 0)
	refused(t, err, stasis.ErrInvalidArgument, "JSON")
}

func TestChatTokens(t *testing.T) {
	session := private(t, model(t, llama))
	asking := func(text string) string {
		return `{"messages": [{"role": "user", "content": "` + text + `"}]}`
	}
	first := asking(strings.Repeat("What is k? ", 100))
	whole, begin := mustBoth(session.ChatTokens(first, stasis.ChatReply))(t)
	equal(t, begin, 0)
	equal(t, len(whole) > 300, true) // more than the first buffer holds
	open, _ := mustBoth(session.ChatTokens(first, 0))(t)
	equal(t, len(open) < len(whole), true)
	equal(t, position(t, session), 0)
	end := must(session.AppendChat(background, first, stasis.ChatReply, nil))(t)
	logged, _ := mustBoth(session.Tokens(0))(t)
	equal(t, reflect.DeepEqual(logged, whole), true)
	none, begin := mustBoth(session.ChatTokens(first, stasis.ChatReply))(t)
	equal(t, begin, end)
	equal(t, len(none), 0)

	other := asking("Bye.")
	rest, begin := mustBoth(session.ChatTokens(other, stasis.ChatReply))(t)
	differs, err := session.AppendChat(background, other, stasis.ChatReply, nil)
	refused(t, err, stasis.ErrConflict, "position")
	equal(t, begin > 0, true)
	equal(t, begin, differs)
	ok(t, session.Rewind(background, begin, 0, nil))
	must(session.AppendChat(background, other, stasis.ChatReply, nil))(t)
	logged, _ = mustBoth(session.Tokens(begin))(t)
	equal(t, reflect.DeepEqual(logged, rest), true)
	_, _, err = session.ChatTokens("[", 0)
	refused(t, err, stasis.ErrInvalidArgument)
}

func mustBoth[A, B any](a A, b B, err error) func(testing.TB) (A, B) {
	return func(t testing.TB) (A, B) {
		t.Helper()
		ok(t, err)
		return a, b
	}
}

func TestTokensOfALongSession(t *testing.T) {
	tokens := someTokens(700, 3) // more than the first buffer holds
	session := sessionOf(t, model(t, plain), tokens)
	got, sources := mustBoth(session.Tokens(10))(t)
	equal(t, len(got), 690)
	equal(t, len(sources), 690)
	for i := range got {
		equal(t, got[i], tokens[10+i])
		equal(t, sources[i], stasis.SourcePrompt)
	}
	_, _, err := session.Tokens(701)
	refused(t, err, stasis.ErrInvalidArgument)
}

func TestForkOfAFork(t *testing.T) {
	tokens := someTokens(100, 1)
	parent := sessionOf(t, model(t, local), tokens[:80])
	before := digest(t, parent)
	child := must(parent.Fork())(t)
	defer child.Close()
	ok(t, child.Append(background, tokens[80:90], nil))
	grandchild := must(child.Fork())(t)
	defer grandchild.Close()
	ok(t, parent.Close()) // the young ones live on
	ok(t, grandchild.Append(background, tokens[90:], nil))
	equal(t, digest(t, grandchild), digest(t, sessionOf(t, model(t, local), tokens)))
	equal(t, digest(t, child), digest(t, sessionOf(t, model(t, local), tokens[:90])))
	ok(t, child.Rewind(background, 80, 0, nil))
	equal(t, digest(t, child), before)
}

func TestRewind(t *testing.T) {
	tokens := someTokens(300, 1)
	session := sessionOf(t, model(t, local), tokens)
	info := must(session.Info())(t)
	equal(t, info.RewindFloor > 0, true)
	refused(t, session.Rewind(background, 1, 0, nil), stasis.ErrUnsupported)
	refused(t, session.Rewind(background, 301, 0, nil), stasis.ErrInvalidArgument)
	equal(t, position(t, session), 300)
	ok(t, session.Rewind(background, 100, stasis.RewindRecompute, nil))
	equal(t, digest(t, session), digest(t, sessionOf(t, model(t, local), tokens[:100])))
	ok(t, session.Rewind(background, 0, 0, nil))
	equal(t, position(t, session), 0)
}

func TestEvict(t *testing.T) {
	session := sessionOf(t, model(t, plain), someTokens(200, 1))
	before := digest(t, session)
	ok(t, session.Evict(10, 150))
	equal(t, must(session.Info())(t).PositionsEvicted, 140)
	equal(t, digest(t, session) != before, true)
	refused(t, session.Evict(10, 201), stasis.ErrInvalidArgument)
	_, _, err := session.KV(0, 64, 128)
	refused(t, err, stasis.ErrNotFound)
}

func TestKV(t *testing.T) {
	info := must(model(t, plain).Info())(t)
	a := sessionOf(t, model(t, plain), someTokens(70, 1))
	b := sessionOf(t, model(t, plain), someTokens(70, 1))
	keys, values, err := a.KV(1, 60, 70)
	ok(t, err)
	equal(t, len(keys), 10*info.KVHeads*info.HeadDim)
	equal(t, len(values), len(keys))
	again, _, err := b.KV(1, 60, 70)
	ok(t, err)
	differ := 0
	for i := range keys {
		equal(t, keys[i], again[i])
		if keys[i] != values[i] {
			differ++
		}
	}
	equal(t, differ > 0, true)
	_, _, err = a.KV(-1, 0, 1)
	refused(t, err, stasis.ErrInvalidArgument, "layer")
	_, _, err = a.KV(1000, 0, 1)
	refused(t, err, stasis.ErrInvalidArgument)
}

func TestAttention(t *testing.T) {
	info := must(model(t, plain).Info())(t)
	session := must(model(t, plain).NewSession(
		&stasis.SessionOptions{TrackAttention: stasis.TrackByHead}))(t)
	defer session.Close()
	ok(t, session.Append(background, someTokens(20, 1), nil))
	total := must(session.Attention(0))(t)
	heads := must(session.Attention(stasis.AttentionByHead))(t)
	equal(t, len(total), 20)
	equal(t, len(heads), 20*info.Layers*info.Heads)
	sum := 0.0
	for _, weight := range total {
		sum += weight
	}
	all := float64(20 * info.Layers * info.Heads)
	equal(t, math.Abs(sum-all) < 1e-3*all, true)
	_, err := sessionOf(t, model(t, plain), someTokens(2, 1)).Attention(0)
	refused(t, err, stasis.ErrUnsupported)
}

func TestWhatOnlyAsksChangesNothing(t *testing.T) {
	session := sessionOf(t, model(t, llama), someTokens(70, 1))
	before := digest(t, session)
	top := must(session.Top(5))(t)
	equal(t, len(top), 5)
	equal(t, top[0].LogProbability >= top[4].LogProbability && top[0].LogProbability < 0, true)
	equal(t, must(session.Sample())(t), top[0].Token) // greedy
	scores := must(session.Score(background, []stasis.Token{top[1].Token, 7}, nil))(t)
	equal(t, len(scores), 2)
	equal(t, math.Abs(scores[0]-float64(top[1].LogProbability)) < 1e-4, true)
	equal(t, len(must(session.Text(0, 70))(t)) > 0, true)
	equal(t, digest(t, session), before)
	equal(t, must(session.Decode())(t), top[0].Token)
	equal(t, position(t, session), 71)
	_, err := session.Top(1 << 40)
	refused(t, err, stasis.ErrInvalidArgument)
	_, err = session.Top(-1)
	refused(t, err, stasis.ErrInvalidArgument)
	equal(t, len(must(session.Top(0))(t)), 0)
}

func TestSampling(t *testing.T) {
	draw := func(sampling *stasis.Sampling) (drawn [20]stasis.Token) {
		session := sessionOf(t, model(t, llama), someTokens(70, 1))
		ok(t, session.SetSampling(sampling))
		for i := range drawn {
			drawn[i] = must(session.Decode())(t)
		}
		return drawn
	}
	warm := stasis.Sampling{Temperature: 2, TopP: 0.99, Seed: 5}
	equal(t, draw(&warm), draw(&warm))
	other := warm
	other.Seed = 6
	equal(t, draw(&other) != draw(&warm), true)
	equal(t, draw(nil), draw(&stasis.Sampling{}))
	forbidden := draw(nil)[0]
	biased := draw(&stasis.Sampling{Bias: map[stasis.Token]float32{
		forbidden: float32(math.Inf(-1)), 9: 0}})
	equal(t, biased[0] != forbidden, true)
	for _, token := range draw(&stasis.Sampling{Bias: map[stasis.Token]float32{77: 1e6}}) {
		equal(t, token, 77)
	}
	session := private(t, model(t, llama))
	refused(t, session.SetSampling(&stasis.Sampling{TopP: 2}), stasis.ErrInvalidArgument, "top_p")
	ok(t, session.SetSampling(&stasis.Sampling{Temperature: 1, TopK: 40, TopP: 0.9, MinP: 0.01,
		RepetitionPenalty: 1.1, FrequencyPenalty: 0.1, PresencePenalty: 0.1, PenaltyWindow: 32,
		TypicalP: 0.9, TopNSigma: 2, XTCProbability: 0.5, XTCThreshold: 0.1, DRYMultiplier: 0.8,
		DRYBase: 1.75, DRYAllowedLength: 2, DRYRange: 100, DRYBreakers: []stasis.Token{5},
		MinKeep: 1}))
}
