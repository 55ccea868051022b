// Memory of models and sessions, said beforehand and then taken.

package stasis_test

import (
	"context"
	"path/filepath"
	"testing"

	stasis "stasis.example/stasis.git/bindings/go"
)

func TestSessionMemory(t *testing.T) {
	m := model(t, "recall-gemma3")
	options := &stasis.SessionOptions{Domain: stasis.DomainPrivate}
	for _, positions := range []uint64{0, 1, 100, 400} {
		said := must(m.SessionMemory(options, positions))(t)
		s := must(m.NewSession(options))(t)
		if err := s.Append(context.Background(), make([]stasis.Token, positions), nil); err != nil {
			t.Fatal(err)
		}
		equal(t, must(s.Info())(t).KVBytes, said.KV)
		equal(t, said.KV <= said.KVMost && said.Total() >= said.KV+said.Fixed, true)
		s.Close()
	}
	far := must(m.SessionMemory(nil, 2000))(t)
	equal(t, far.GlobalPosition < far.Position, true)
	equal(t, far.KV < 2000*far.Position, true)
	_, err := m.SessionMemory(&stasis.SessionOptions{Capacity: 100}, 101)
	refused(t, err, stasis.ErrInvalidArgument, "101 positions")
}

func TestEstimate(t *testing.T) {
	m := model(t, "recall-gemma3")
	path := filepath.Join("..", "..", "tests", "data", "recall-gemma3")
	told := must(stasis.Estimate(path, nil, nil, 300))(t)
	info := must(m.Info())(t)
	equal(t, told.Session, must(m.SessionMemory(nil, 300))(t))
	equal(t, told.Architecture, info.Architecture)
	equal(t, told.WeightTypes, info.WeightTypes)
	equal(t, told.WeightBytes, info.WeightBytes)
	plain := stasis.ModelOptions{Kernels: "reference"}
	mapped := must(stasis.Estimate(path, &plain, nil, 0))(t)
	plain.CopyWeights = true
	copied := must(stasis.Estimate(path, &plain, nil, 0))(t)
	equal(t, copied.Mapped, uint64(0))
	equal(t, copied.Allocated-mapped.Allocated, mapped.Mapped)
	_, err := stasis.Estimate(filepath.Join(t.TempDir(), "none"), nil, nil, 0)
	refused(t, err, stasis.ErrNotFound, "none")
	_, err = stasis.Estimate(path, nil, nil, info.Context+1)
	refused(t, err, stasis.ErrInvalidArgument, "positions")
}
