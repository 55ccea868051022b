// Pools of threads that models share.

package stasis_test

import (
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	stasis "stasis.example/stasis.git/bindings/go"
)

// becomes waits until so many threads have a name that begins so: a thread takes its name when it
// first runs, and leaves after it was joined.
func becomes(prefix string, count int) bool {
	for i := 0; i < 5000; i++ {
		found := 0
		tasks, _ := os.ReadDir("/proc/self/task")
		for _, task := range tasks {
			name, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/comm")
			if strings.HasPrefix(string(name), prefix) {
				found++
			}
		}
		if found == count {
			return true
		}
		time.Sleep(2 * time.Millisecond)
	}
	return false
}

func TestModelsShareThreads(t *testing.T) {
	converse := func(m *stasis.Model) stasis.Digest {
		session := private(t, m)
		ok(t, session.Append(background, someTokens(90, 1), nil))
		return must(session.Digest())(t)
	}
	expected := converse(model(t, gemma))
	threads := must(stasis.NewThreads(&stasis.ThreadsOptions{Count: 3, Name: "go-pool"}))(t)
	var shared [2]*stasis.Model
	for i := range shared {
		shared[i] = must(stasis.Open(background, data+gemma,
			&stasis.ModelOptions{ThreadPool: threads}))(t)
		equal(t, must(shared[i].Info())(t).Threads, 3)
	}
	equal(t, becomes("go-pool", 2), true)
	ok(t, threads.Close())
	var group sync.WaitGroup
	var digests [2]stasis.Digest
	for i := range shared {
		group.Add(1)
		go func(i int) {
			defer group.Done()
			digests[i] = converse(shared[i])
		}(i)
	}
	group.Wait()
	equal(t, digests, [2]stasis.Digest{expected, expected})
	equal(t, becomes("go-pool", 2), true)
}

func TestThreadsEnd(t *testing.T) {
	threads := must(stasis.NewThreads(&stasis.ThreadsOptions{Count: 2, Name: "go-ends"}))(t)
	m := must(stasis.Open(background, data+plain, &stasis.ModelOptions{ThreadPool: threads}))(t)
	ok(t, threads.Close())
	equal(t, becomes("go-ends", 1), true)
	ok(t, m.Close())
	equal(t, becomes("go-ends", 0), true)
	_, err := stasis.Open(background, data+plain, &stasis.ModelOptions{ThreadPool: threads})
	refused(t, err, stasis.ErrInvalidArgument, "closed")
}

func TestThreadsRefused(t *testing.T) {
	for name, options := range map[string]stasis.ThreadsOptions{
		"CPU 65535":       {CPUs: []int{65535}},
		"CPUs is -1":      {CPUs: []int{-1}},
		"much-too-long-a": {Count: 2, Name: "much-too-long-a-name"},
		"1025":            {Count: 1025},
	} {
		_, err := stasis.NewThreads(&options)
		refused(t, err, stasis.ErrInvalidArgument, name)
	}
	threads := must(stasis.NewThreads(nil))(t)
	defer threads.Close()
	_, err := stasis.Open(background, data+plain,
		&stasis.ModelOptions{ThreadPool: threads, Threads: 2})
	refused(t, err, stasis.ErrInvalidArgument, "thread_pool")
}
