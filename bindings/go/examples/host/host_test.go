// The host: nothing is lost, whatever is evicted, fails or begins anew.

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	stasis "stasis.example/stasis.git/bindings/go"
)

const model = "../../../../tests/data/recall-llama"

var ctx = context.Background()

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// smallOptions set a budget for few idle sessions.
func smallOptions(t *testing.T) hostOptions {
	return hostOptions{store: "dir:" + filepath.Join(t.TempDir(), "store"), system: system,
		budget: 8 << 20, capacity: 300, seats: 4}
}

func small(t *testing.T, options hostOptions) *host {
	t.Helper()
	h, err := newHost(ctx, model, options)
	ok(t, err)
	return h
}

// add appends a turn and gives the digest after it.
func add(t *testing.T, h *host, name, text string) (digest stasis.Digest) {
	t.Helper()
	ok(t, h.use(ctx, name, func(session *stasis.Session) error {
		err := session.AppendMessage(ctx, stasis.Message{Role: "user", Text: text}, 0, nil)
		if err == nil {
			digest, err = session.Digest()
		}
		return err
	}))
	return digest
}

func look(t *testing.T, h *host, name string) (digest stasis.Digest) {
	t.Helper()
	ok(t, h.use(ctx, name, func(session *stasis.Session) (err error) {
		digest, err = session.Digest()
		return err
	}))
	return digest
}

func TestManySessions(t *testing.T) {
	w := &work{scripts: make([]script, 40), goroutines: 16, turnsMax: 3, tokensMax: 12,
		capacity: 300}
	ok(t, show(ctx, model, w, smallOptions(t), 300*time.Millisecond))
}

func TestBudgetHolds(t *testing.T) {
	h := small(t, smallOptions(t))
	for i := 0; i < 60; i++ {
		add(t, h, nameOf(i), "Hello?")
		stats, err := h.model.Stats()
		ok(t, err)
		if stats.KVUsed > h.keepMax {
			t.Fatalf("%d bytes in use, %d to keep", stats.KVUsed, h.keepMax)
		}
	}
	if h.figures.evictions == 0 || h.idle.Len() == 0 {
		t.Fatalf("%d evictions, %d idle: expected some of both", h.figures.evictions,
			h.idle.Len())
	}
	// The one that was idle for longest went first.
	if h.entries[nameOf(0)].session != nil || h.entries[nameOf(59)].session == nil {
		t.Fatal("the wrong ones were evicted")
	}
	ok(t, h.close(ctx))
}

func TestNamesAreAnything(t *testing.T) {
	options := smallOptions(t)
	names := []string{"a/b", "a", "..", ".", "ü %2F?", "a.stasis"}
	h := small(t, options)
	var digests []stasis.Digest
	for _, name := range names {
		digests = append(digests, add(t, h, name, name))
	}
	ok(t, h.close(ctx))
	h = small(t, options)
	for i, name := range names {
		if look(t, h, name) != digests[i] {
			t.Errorf("%q is not what it was", name)
		}
	}
	sessions, err := h.store.List(ctx)
	ok(t, err)
	if len(sessions) != len(names) {
		t.Errorf("%d stored sessions, expected %d", len(sessions), len(names))
	}
	ok(t, h.close(ctx))
}

func TestAnotherSessionIsNoticed(t *testing.T) {
	options := smallOptions(t)
	h := small(t, options)
	add(t, h, "a", "one")
	add(t, h, "b", "two")
	evictAll(t, h)
	ok(t, h.store.Fork(ctx, "a", "b", &stasis.StoreCallOptions{Overwrite: true}))
	ok(t, h.store.Remove(ctx, "a"))
	err := h.use(ctx, "b", func(*stasis.Session) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "came back as") {
		t.Error(err)
	}
	err = h.use(ctx, "a", func(*stasis.Session) error { return nil })
	if !errors.Is(err, stasis.ErrNotFound) { // not made anew: it was there
		t.Error(err)
	}
	ok(t, h.close(ctx))
}

func evictAll(t *testing.T, h *host) {
	t.Helper()
	keep := h.keepMax
	h.keepMax = 0
	ok(t, h.makeRoom(ctx))
	h.keepMax = keep
}

func TestWhatCannotBeStoredStays(t *testing.T) {
	options := smallOptions(t)
	h := small(t, options)
	digest := add(t, h, "a", "one")
	h.keepMax = 0
	folder := strings.TrimPrefix(options.store, "dir:")
	ok(t, os.Rename(folder, folder+" away"))
	ok(t, os.WriteFile(folder, nil, 0o600))
	if err := h.makeRoom(ctx); !errors.Is(err, stasis.ErrIO) {
		t.Fatal(err)
	}
	ok(t, os.Remove(folder))
	ok(t, os.Rename(folder+" away", folder))
	if look(t, h, "a") != digest {
		t.Error("the session changed")
	}
	ok(t, h.close(ctx))
	h = small(t, options)
	if look(t, h, "a") != digest {
		t.Error("the session changed in the store")
	}
	ok(t, h.close(ctx))
}

func TestTwoHostsLoseNoTurn(t *testing.T) {
	options := smallOptions(t)
	h := small(t, options)
	add(t, h, "a", "one")
	evictAll(t, h)
	other := small(t, options)
	theirs := add(t, other, "a", "two")
	own := add(t, h, "a", "three")
	evictAll(t, other)
	keep := h.keepMax
	h.keepMax = 0
	var conflict *stasis.ConflictError
	if err := h.makeRoom(ctx); !errors.As(err, &conflict) {
		t.Fatal(err)
	}
	h.keepMax = keep
	if look(t, h, "a") != own || look(t, other, "a") != theirs {
		t.Error("a turn is lost")
	}
	ok(t, other.close(ctx))
}

func TestTooSmallABudget(t *testing.T) {
	options := smallOptions(t)
	options.budget = 1 << 20
	if _, err := newHost(ctx, model, options); err == nil {
		t.Error("there is no room for a session in each seat")
	}
}
