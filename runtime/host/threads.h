// The pool of worker threads of a model, or of several that share it. Splits independent items over
// threads; results do not depend on how (work is never split inside a reduction). Workers run in
// the contract's floating-point environment (C2) with all signals blocked.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace stasis {

// Where the workers of a pool run, and what they are called.
struct ThreadsPlace {
    std::vector<uint32_t> cpus; // that workers run on, each once; empty: those of their creator
    std::string name;           // of each worker, before its number; "": their creator's name
};

class Threads {
  public:
    static constexpr size_t kCountMax = 1024;
    static constexpr uint32_t kCpuMax = 65535; // the highest number that a CPU may have
    static constexpr size_t kNameMax = 15;     // bytes of a thread's name, its number included

    // Creates a pool in which `count` threads take part in a run, the caller included; 0: one for
    // each core allowed, or for each of `place.cpus`. Throws Error(invalid_argument) above
    // kCountMax, for CPUs that this process may not use and for a name that is too long, and
    // Error(no_memory) if a thread cannot be started.
    explicit Threads(size_t count, const ThreadsPlace &place = {});
    // Joins the workers. A process forked from the owner's has no workers and joins nothing. A run
    // in such a process is computed by the calling thread alone, because a run waits only for
    // workers that entered it.
    ~Threads();
    Threads(const Threads &) = delete;
    Threads &operator=(const Threads &) = delete;

    size_t count() const { return workers_.size() + 1; }

    // Calls work(begin, end) for disjoint ranges that cover [0, items), each of at most `grain`
    // items, on the pool and the calling thread. Returns when all are done. `work` must not throw.
    // If several host threads call at once, one uses the pool and the others run on their own
    // thread, as does a run inside a run. Allocates nothing.
    // Alternatively calls work(begin, end, thread), with a thread number below count() that no
    // other thread of the same run has; the caller has 0.
    template <typename Work> void run(size_t items, size_t grain, const Work &work) {
        run(items, grain, &work, [](const void *function, size_t begin, size_t end, size_t thread) {
            if constexpr (std::is_invocable_v<Work, size_t, size_t, size_t>) {
                (*static_cast<const Work *>(function))(begin, end, thread);
            } else {
                (*static_cast<const Work *>(function))(begin, end);
            }
        });
    }

  private:
    using Call = void (*)(const void *work, size_t begin, size_t end, size_t thread);
    // In `entered_`: the run takes no further workers.
    static constexpr uint32_t kClosed = 0x80000000U;
    // A bit of `generation_` and `left_`, which count in steps of kOne: a thread sleeps until the
    // counter grows.
    static constexpr uint32_t kSlept = 1, kOne = 2;

    void run(size_t items, size_t grain, const void *work, Call call);
    void start_worker(const pthread_attr_t *attributes);
    void stop_workers();
    void worker();
    void share_out(size_t items, size_t grain);
    void take_items(size_t thread);
    static void count_up(std::atomic<uint32_t> &counter); // and wakes its waiters
    // Returns the new count.
    uint32_t wait_while(std::atomic<uint32_t> &counter, uint32_t count) const;

    std::string name_;               // of the workers, before their numbers; "": none
    std::atomic<uint32_t> named_{0}; // workers that took a number
    std::vector<pthread_t> workers_; // not std::thread, whose destructor ends a forked child
    pid_t process_;                  // the process that the workers belong to
    int spins_ = 0;                  // rounds of waiting before a thread goes to sleep
    std::atomic_flag busy_;          // held by the host thread whose run uses the pool
    std::atomic<bool> stop_{false};
    std::atomic<uint32_t> generation_{0}; // grows with every run, and when the pool stops

    // The run in progress. The fields are written before `entered_` opens, and read only by workers
    // that entered before it closed. A run waits for these alone, so a worker that is still asleep
    // delays no run.
    std::atomic<uint32_t> entered_{kClosed};
    std::atomic<uint32_t> left_{0};
    size_t items_ = 0, grain_ = 1;
    // The grains that a thread takes before it helps others: a contiguous share, so that it reads
    // memory in sequence. In units of `grain_` items.
    struct alignas(64) Share {
        std::atomic<size_t> next{0};
        size_t end = 0;
    };
    std::vector<Share> shares_; // [count()]
    const void *work_ = nullptr;
    Call call_ = nullptr;
};

} // namespace stasis
