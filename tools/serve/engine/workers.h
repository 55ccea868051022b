// Threads for work that waits: stores, texts, constraints. Must not know what the work is.
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
    explicit Workers(size_t threads);
    ~Workers(); // after all work that was given
    Workers(const Workers &) = delete;
    Workers &operator=(const Workers &) = delete;

    // Runs the work soon, on one of the threads. It must not throw. Any thread.
    void post(std::function<void()> work);
    size_t waiting() const; // work that has not begun

  private:
    void serve();

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> waiting_;
    bool closing_ = false;
    std::vector<std::thread> threads_;
};

} // namespace serve
