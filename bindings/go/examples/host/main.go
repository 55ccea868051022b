// Host is an example of a server that keeps more sessions than fit into memory. They begin as forks
// of one system prompt; idle ones are evicted to a store, under a budget of KV memory, and
// resumed when they are asked for. It lets many goroutines converse for a while, then begins anew
// from the store alone, and then plays every conversation again, one by one: nothing may be lost,
// and every digest must be the same.
//
//	go run ./examples/host [-sessions N] [-goroutines N] [-for DURATION] [-store URI] MODEL
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sort"
	"time"

	stasis "stasis.example/stasis.git/bindings/go"
)

const system = "You are the assistant of a small workshop that keeps its accounts in variables. " +
	"Each customer has a conversation of their own. Answer in one short sentence, name the " +
	"variable that was asked for, and say nothing of other customers."

func main() {
	sessions := flag.Int("sessions", 500, "sessions")
	goroutines := flag.Int("goroutines", 64, "goroutines that use them")
	duration := flag.Duration("for", 5*time.Second, "how long")
	seats := flag.Int("seats", 16, "sessions in use at once")
	budget := flag.Uint64("budget", 64<<20, "bytes of KV pages")
	turns := flag.Int("turns", 8, "of a conversation, at most")
	store := flag.String("store", "", "where sessions are, dir:PATH or sqlite:PATH; none: a "+
		"temporary folder")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: host [options] MODEL")
		os.Exit(2)
	}
	const reply = 24
	// A turn is some 50 tokens and the reply; the system prompt fits with them.
	w := &work{scripts: make([]script, *sessions), goroutines: *goroutines, turnsMax: *turns,
		tokensMax: reply, capacity: uint64(256 + *turns*(50+reply))}
	options := hostOptions{store: *store, system: system, budget: *budget,
		capacity: w.capacity, seats: *seats}
	if err := show(context.Background(), flag.Arg(0), w, options, *duration); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// show plays it all and prints the figures.
func show(ctx context.Context, model string, w *work, options hostOptions,
	duration time.Duration) error {
	if options.store == "" {
		folder, err := os.MkdirTemp("", "stasis-host-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(folder)
		options.store = "dir:" + folder
	}
	h, err := newHost(ctx, model, options)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := w.play(ctx, h, duration); err != nil {
		return err
	}
	took := time.Since(start)
	if err := h.close(ctx); err != nil {
		return err
	}
	w.print(h, took)

	h, err = newHost(ctx, model, options)
	if err != nil {
		return err
	}
	resumed, err := w.resumedRight(ctx, h)
	if err != nil {
		return err
	}
	forks := h.figures.forks
	if err := h.close(ctx); err != nil {
		return err
	}
	repeated, err := w.repeatedRight(ctx, model, options.system)
	if err != nil {
		return err
	}
	fmt.Printf("from the store alone: %d of %d sessions as they were left, %d lost\n", resumed,
		len(w.scripts), forks)
	fmt.Printf("again, one by one: %d of %d digests the same\n", repeated, len(w.scripts))
	if resumed != len(w.scripts) || repeated != len(w.scripts) || forks != 0 {
		return fmt.Errorf("sessions are not what they were")
	}
	return sizes(ctx, w, options.store)
}

func (w *work) print(h *host, took time.Duration) {
	turns, tokens := 0, uint64(0)
	for _, script := range w.scripts {
		turns += script.turns
		tokens += script.tokens
	}
	f := h.figures
	fmt.Printf("%d sessions, %d goroutines, %d seats, %.1f s: %d turns, %d positions\n",
		len(w.scripts), w.goroutines, h.seats, took.Seconds(), turns, tokens)
	fmt.Printf("%d forks of the system prompt, %d evictions, %d resumes\n", f.forks, f.evictions,
		len(f.resumes))
	fmt.Printf("KV memory: at most %.1f MiB seen, of %.1f\n", float64(f.kvPeak)/(1<<20),
		float64(h.budget)/(1<<20))
	sort.Slice(f.resumes, func(i, j int) bool { return f.resumes[i] < f.resumes[j] })
	if count := len(f.resumes); count > 0 {
		fmt.Printf("resume: median %.2f ms, 99th percentile %.2f ms\n",
			f.resumes[count/2].Seconds()*1e3, f.resumes[count*99/100].Seconds()*1e3)
	}
}

// sizes prints what a session takes.
func sizes(ctx context.Context, w *work, uri string) error {
	store, err := stasis.OpenStore(uri, &stasis.StoreOptions{Existing: true})
	if err != nil {
		return err
	}
	defer store.Close()
	sessions, err := store.List(ctx)
	if err != nil {
		return err
	}
	// What earlier puts have left goes; the rest is what the sessions take.
	collected, err := store.Collect(ctx, nil)
	if err != nil {
		return err
	}
	var inFiles, inMemory, tokens uint64
	for _, session := range sessions {
		inFiles += session.Bytes
	}
	for _, script := range w.scripts {
		inMemory += script.bytes
		tokens += script.tokens
	}
	count := uint64(len(w.scripts))
	if uint64(len(sessions)) != count {
		return fmt.Errorf("%d stored sessions, expected %d", len(sessions), count)
	}
	inStore := collected.Bytes - collected.RemovedBytes
	fmt.Printf("a session: %d positions, %d bytes in the store (%d in a file of its own), %d of "+
		"its own in memory\n", tokens/count, inStore/count, inFiles/count, inMemory/count)
	return nil
}
