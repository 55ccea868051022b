// Steps of several sessions: each gets what it gets alone.

package stasis_test

import (
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

func TestStep(t *testing.T) {
	m := model(t, llama)
	const sessions, steps = 5, 30
	var items [sessions]stasis.StepItem
	var alone [sessions]*stasis.Session
	for i := range items {
		prompt := someTokens(10+20*i, uint32(i))
		items[i] = stasis.StepItem{Session: private(t, m), Tokens: prompt, Sample: true}
		alone[i] = sessionOf(t, m, prompt)
	}
	for step := 0; step < steps; step++ {
		ok(t, stasis.Step(background, items[:], &stasis.RunOptions{Chunk: 16}))
		for i := range items {
			ok(t, items[i].Err)
			equal(t, items[i].Token, must(alone[i].Decode())(t))
			items[i].Tokens = nil
		}
	}
	for i := range items {
		equal(t, digest(t, items[i].Session), digest(t, alone[i]))
	}
}

func TestStepItemsThatFail(t *testing.T) {
	m := model(t, plain)
	small := must(m.NewSession(&stasis.SessionOptions{Capacity: 3}))(t)
	defer small.Close()
	a, b := private(t, m), private(t, m)
	items := []stasis.StepItem{{Session: small, Tokens: someTokens(4, 1), Sample: true},
		{Session: a, Tokens: []stasis.Token{1, 2}, Sample: true}, {Session: b, Sample: true}}
	ok(t, stasis.Step(background, items, nil))
	refused(t, items[0].Err, stasis.ErrFull)
	ok(t, items[1].Err)
	refused(t, items[2].Err, stasis.ErrNotFound) // nothing to draw from
	equal(t, position(t, small), 0)
	equal(t, position(t, a), 3)

	for _, bad := range [][]stasis.StepItem{{{}}, {{Session: a}, {Session: a}},
		{{Session: a}, {Session: private(t, model(t, tiny))}}} {
		err := stasis.Step(background, bad, nil)
		refused(t, err, stasis.ErrInvalidArgument)
		refused(t, bad[0].Err, stasis.ErrInvalidArgument)
	}
	ok(t, stasis.Step(background, nil, nil))
	err := stasis.Step(background, []stasis.StepItem{{Session: a}}, &stasis.RunOptions{
		Logits: func(uint64, []float32) error { return nil }})
	refused(t, err, stasis.ErrInvalidArgument, "logits")
}
