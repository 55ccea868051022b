// Pools of threads that models share.

package stasis

// #include "bridge.h"
//
// static void free_threads(void *threads) { stasis_threads_free(threads); }
import "C"

import (
	"runtime"
	"unsafe"
)

// ThreadsOptions say how a pool is made; the zero value is the default in every field.
type ThreadsOptions struct {
	Count int    // that compute, the caller's included; 0: one for each of CPUs, or one per core
	CPUs  []int  // on any of which the started threads run; none: those of the creator
	Name  string // of the started threads, followed by their number: 15 bytes at most together
}

// Threads are a pool that any number of models compute with (ModelOptions.ThreadPool). The results
// are the same. Models keep the threads that they were opened with, also after Close.
type Threads struct {
	handle
}

// NewThreads starts the threads of a pool. Options may be nil.
func NewThreads(options *ThreadsOptions) (*Threads, error) {
	c := brief("create threads")
	var given C.stasis_threads_options
	C.stasis_threads_options_init(&given, C.sizeof_stasis_threads_options)
	if options != nil {
		given.count = c.count("Count", options.Count)
		given.name = c.text("Name", options.Name)
		numbers := make([]C.uint32_t, len(options.CPUs))
		for i, cpu := range options.CPUs {
			numbers[i] = c.count("CPUs", cpu)
		}
		given.cpus, given.cpu_count = first(array(c, numbers)), C.size_t(len(numbers))
	}
	var made *C.stasis_threads
	err := c.run(func(failure *C.stasis_error) C.stasis_status {
		return C.stasis_threads_create(&given, &made, failure)
	})
	if err != nil {
		return nil, err
	}
	threads := &Threads{handle{pointer: unsafe.Pointer(made),
		free: func(threads unsafe.Pointer) { C.free_threads(threads) }}}
	runtime.SetFinalizer(threads, (*Threads).Close)
	return threads, nil
}

// Close lets go of the threads, which end with the last model that has them. It returns nil.
func (t *Threads) Close() error {
	runtime.SetFinalizer(t, nil)
	t.close()
	return nil
}
