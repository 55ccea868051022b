// Loops that range over the iterators.

//go:build go1.23

package stasis_test

import (
	"context"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

func TestRangeOverGeneration(t *testing.T) {
	options := &stasis.GenerateOptions{TokensMax: 12, IgnoreEnd: true}
	session, stepped := asked(t, llama), asked(t, llama)
	count := 0
	for generated, err := range session.Generation(background, options).All() {
		ok(t, err)
		equal(t, generated.Token, must(stepped.Decode())(t))
		if count++; count == 5 {
			break
		}
	}
	ok(t, session.Append(background, someTokens(1, 1), nil)) // it was closed
	for range session.Generation(background, options).All() {
		count++
	}
	equal(t, count, 17)
	ctx, cancel := context.WithCancel(background)
	cancel()
	count = 0
	for _, err := range session.Generation(ctx, options).All() {
		refused(t, err, stasis.ErrCancelled)
		count++
	}
	equal(t, count, 1)
}

func TestRangeOverEvents(t *testing.T) {
	m := model(t, plain)
	s := scheduler(t, m, nil)
	expected, count := submitted(t, s, m, 4), 0
	for event, err := range s.Events(background, nil).All() {
		ok(t, err)
		if !event.End {
			count++
		}
	}
	for _, tokens := range expected {
		count -= len(tokens)
	}
	equal(t, count, 0)
	for event, err := range s.Events(background, nil).All() {
		t.Fatal(event, err)
	}
}
