// Threads for work that waits: stores, texts, constraints. Must not know what the work is. Where
// all of them wait for a store that stands still, others come for work that does not need it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace serve {

class Workers {
  public:
    // Begins with `threads`, and adds as many again, up to `most`, when work waits and none was
    // begun for a tenth of a second.
    Workers(size_t threads, size_t most);
    ~Workers(); // finishes
    Workers(const Workers &) = delete;
    Workers &operator=(const Workers &) = delete;

    // Runs the work soon, on one of the threads. It must not throw. Any thread. After `finish` work
    // is dropped.
    void post(std::function<void()> work);
    size_t waiting() const; // work that has not begun
    // Ends the threads, after all work that was given, and all that this gives. Not on a worker.
    void finish();

  private:
    void serve();
    void watch();

    mutable std::mutex mutex_;
    std::condition_variable changed_, came_; // the latter for the watcher
    std::deque<std::function<void()>> waiting_;
    bool closing_ = false;
    uint64_t begun_ = 0; // work that was taken from the queue
    const size_t most_;
    std::vector<std::thread> threads_;
    std::thread watcher_; // adds to `threads_`
};

} // namespace serve
