// Iterators for loops that range over functions, which Go has from 1.23 on.

//go:build go1.23

package stasis

import "iter"

// All is the rest of the generation, for a loop:
//
//	for generated, err := range session.Generation(ctx, nil).All() {
//		...
//	}
//
// An error comes last, with no token. However the loop is left, the generation is closed.
func (g *Generation) All() iter.Seq2[Generated, error] {
	return func(yield func(Generated, error) bool) {
		defer g.Close()
		for g.Next() {
			if !yield(g.Generated(), nil) {
				return
			}
		}
		if err := g.Err(); err != nil {
			yield(Generated{}, err)
		}
	}
}

// All is the rest of the events, for a loop as over [Generation.All]. An error comes last, with no
// event.
func (e *SchedulerEvents) All() iter.Seq2[SchedulerEvent, error] {
	return func(yield func(SchedulerEvent, error) bool) {
		for e.Next() {
			if !yield(e.event, nil) {
				return
			}
		}
		if e.err != nil {
			yield(SchedulerEvent{}, e.err)
		}
	}
}
