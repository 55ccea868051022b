// The host itself: which sessions are in memory, and which in the store.

package main

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	stasis "stasis.example/stasis.git/bindings/go"
)

// A host keeps named sessions that begin with the same system prompt. Sessions in use are in
// memory, and so are those used last; the others are in a store, which holds what they share, as
// the system prompt, once.
//
// KV pages never take more than the budget, which the model itself enforces (its KVBudget). Seats
// bound how many sessions are in use; each of those may come to hold a full session's pages. Other
// sessions in memory are idle, and before a seat is given, idle sessions are evicted until the
// budget suffices for a full session in every seat. So no call ever meets POOL_EXHAUSTED.
type host struct {
	model   *stasis.Model
	store   *stasis.Store
	system  *stasis.Session // what new sessions are forks of
	seats   int
	budget  uint64 // bytes of KV pages
	keepMax uint64 // of these in use after evictions

	mutex   sync.Mutex // guards what follows
	changed *sync.Cond // a seat was given up
	taken   int        // seats
	entries map[string]*entry
	idle    *list.List // of *entry in memory that nobody uses, least recently used first
	figures figures
}

// An entry is a session that was used since the host began.
type entry struct {
	name    string
	inUse   bool            // by the one goroutine that may touch what follows
	session *stasis.Session // nil: not in memory
	idle    *list.Element   // nil: in use, or not in memory
	evicted bool            // once; its digest is stored then
	digest  stasis.Digest   // at its last eviction
}

type figures struct {
	forks, evictions int
	resumes          []time.Duration // how long each took
	kvPeak           uint64          // bytes
}

type hostOptions struct {
	store    string // as of stasis.OpenStore
	system   string
	budget   uint64 // bytes of KV pages
	capacity uint64 // positions of a session
	seats    int    // sessions in use at once
}

func newHost(ctx context.Context, modelPath string, options hostOptions) (*host, error) {
	model, err := stasis.Open(ctx, modelPath, &stasis.ModelOptions{KVBudget: options.budget})
	if err != nil {
		return nil, err
	}
	store, err := stasis.OpenStore(options.store, nil)
	if err != nil {
		return nil, err
	}
	h := &host{model: model, store: store, seats: options.seats, budget: options.budget,
		entries: map[string]*entry{}, idle: list.New()}
	h.changed = sync.NewCond(&h.mutex)
	info, err := model.Info()
	if err != nil {
		return nil, err
	}
	// Keys and values of two bytes; the seats' sessions and the system prompt, full, and a page
	// each that is being copied.
	page := uint64(info.PagePositions)
	full := (options.capacity/page + 2) * page * uint64(4*info.Layers*info.KVHeads*info.HeadDim)
	if reserve := full * uint64(options.seats+1); options.budget <= reserve {
		return nil, fmt.Errorf("%d sessions in use may take %d bytes: more than the budget",
			options.seats, reserve)
	} else {
		h.keepMax = options.budget - reserve
	}
	h.system, err = model.NewSession(&stasis.SessionOptions{Capacity: options.capacity})
	if err != nil {
		return nil, err
	}
	return h, h.system.AppendMessage(ctx, stasis.Message{Role: "system", Text: options.system}, 0,
		nil)
}

// use calls a function with a session that no other call uses: from memory, from the store, or new.
// Changes that the function makes stay in the session.
func (h *host) use(ctx context.Context, name string,
	body func(session *stasis.Session) error) error {
	e := h.take(name)
	defer h.leave()
	err := h.bringIn(ctx, e)
	if err == nil {
		err = body(e.session)
	}
	h.release(e)
	if evicting := h.makeRoom(ctx); err == nil {
		err = evicting
	}
	return err
}

// take waits for a seat, and for the session.
func (h *host) take(name string) *entry {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.entries[name] == nil {
		h.entries[name] = &entry{name: name}
	}
	e := h.entries[name]
	for e.inUse || h.taken == h.seats {
		h.changed.Wait()
	}
	h.taken++
	h.claim(e)
	return e
}

// claim makes a session that is not in use the caller's. Under the mutex.
func (h *host) claim(e *entry) {
	e.inUse = true
	if e.idle != nil {
		h.idle.Remove(e.idle)
		e.idle = nil
	}
}

// release makes the caller's session anybody's: the last to be evicted, if it is in memory.
func (h *host) release(e *entry) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	e.inUse = false
	if e.session != nil {
		e.idle = h.idle.PushBack(e)
	}
	h.changed.Broadcast()
}

// leave gives the seat up.
func (h *host) leave() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.taken--
	h.changed.Broadcast()
}

func (h *host) bringIn(ctx context.Context, e *entry) error {
	if e.session != nil {
		return nil
	}
	start := time.Now()
	// Trusted: this host put it there, so its pages of the system prompt may be those of others.
	session, err := h.store.Get(ctx, h.model, e.name, &stasis.LoadOptions{Trusted: true})
	took := time.Since(start)
	if errors.Is(err, stasis.ErrNotFound) && !e.evicted {
		return h.begin(e)
	} else if err != nil {
		return err
	}
	digest, err := session.Digest()
	if err == nil && e.evicted && digest != e.digest {
		err = fmt.Errorf("%s was evicted as %s and came back as %s", e.name, e.digest, digest)
	}
	if err != nil {
		session.Close()
		return err
	}
	e.session = session
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.figures.resumes = append(h.figures.resumes, took)
	return nil
}

func (h *host) begin(e *entry) (err error) {
	h.mutex.Lock() // a session serves one caller at a time, the system prompt too
	defer h.mutex.Unlock()
	e.session, err = h.system.Fork()
	h.figures.forks++
	return err
}

// makeRoom evicts sessions that are idle for longest until the budget suffices for a full session
// in every seat. The caller still has its own.
func (h *host) makeRoom(ctx context.Context) error {
	for {
		stats, err := h.model.Stats()
		if err != nil {
			return err
		}
		oldest := h.claimOldest(stats.KVUsed)
		if oldest == nil {
			return nil
		}
		err = h.evict(ctx, oldest)
		h.release(oldest) // still in memory if that failed: nothing is lost
		if err != nil {
			return err
		}
	}
}

// claimOldest gives the session to evict; nil: no need, or none is idle.
func (h *host) claimOldest(used uint64) *entry {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if used > h.figures.kvPeak {
		h.figures.kvPeak = used
	}
	if used <= h.keepMax || h.idle.Len() == 0 {
		return nil
	}
	oldest := h.idle.Front().Value.(*entry)
	h.claim(oldest)
	return oldest
}

// evict puts a session that the caller has claimed into the store and lets go of it. Of two hosts
// over one store that continue a session, the second gets ErrConflict here, and keeps its own.
func (h *host) evict(ctx context.Context, e *entry) error {
	put, err := h.store.Put(ctx, e.session, e.name, nil)
	if err != nil {
		return err
	}
	e.session.Close()
	e.session, e.evicted, e.digest = nil, true, put.State
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.figures.evictions++
	return nil
}

// close evicts every session; it must come last.
func (h *host) close(ctx context.Context) error {
	h.system.Close()
	defer h.store.Close()
	defer h.model.Close()
	h.keepMax = 0
	return h.makeRoom(ctx)
}
