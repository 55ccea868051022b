// The pool of worker threads that a model owns. Splits independent items over threads; results do
// not depend on how (work is never split inside a reduction). Workers run in the contract's
// floating-point environment (C2) with all signals blocked.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace stasis {

class Threads {
  public:
    // `count` threads take part in a run, the caller included; 0: one for each core allowed.
    explicit Threads(size_t count);
    ~Threads();
    Threads(const Threads &) = delete;
    Threads &operator=(const Threads &) = delete;

    size_t count() const { return workers_.size() + 1; }

    // Calls work(begin, end) for disjoint ranges that cover [0, items), each of at most `grain`
    // items, on the pool and the calling thread; returns when all are done. `work` must not throw.
    // Several host threads may call at once: one uses the pool, the others run on their own thread.
    template <typename Work> void run(size_t items, size_t grain, const Work &work) {
        static_assert(std::is_invocable_v<Work, size_t, size_t>);
        run(items, grain, &work, [](const void *function, size_t begin, size_t end) {
            (*static_cast<const Work *>(function))(begin, end);
        });
    }

  private:
    using Call = void (*)(const void *work, size_t begin, size_t end);
    void run(size_t items, size_t grain, const void *work, Call call);
    void worker();
    void take_items();

    std::vector<std::thread> workers_;
    std::mutex owner_; // held by the host thread whose run uses the pool
    std::mutex mutex_; // guards the fields below
    std::condition_variable started_, finished_;
    uint64_t generation_ = 0;
    size_t active_ = 0;
    bool stop_ = false;
    // The run in progress.
    size_t items_ = 0, grain_ = 1;
    const void *work_ = nullptr;
    Call call_ = nullptr;
    std::atomic<size_t> next_{0};
};

} // namespace stasis
