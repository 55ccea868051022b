// The time that each of many may take, the same for all. Must not know what they are.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

namespace serve {

class Timed {
  public:
    virtual ~Timed() = default;
    // Its time is over. Called once; must return soon and not throw.
    virtual void expire() = 0;
};

class Deadlines {
  public:
    // Each has so many milliseconds from `add` on, and is then told on a thread of its own; 0: as
    // many as it wants.
    explicit Deadlines(uint64_t milliseconds);

    // Until it is gone. Any thread.
    void add(std::weak_ptr<Timed> timed);

  private:
    using Clock = std::chrono::steady_clock;
    struct Running {
        Clock::time_point until;
        std::weak_ptr<Timed> timed;
    };
    void run(const std::stop_token &stop);

    std::chrono::milliseconds time_;
    std::mutex mutex_;
    std::condition_variable_any changed_;
    std::deque<Running> running_; // in the order of their ends
    size_t swept_ = 0;            // of them when those that are gone were last removed
    std::jthread thread_;         // ends before all above
};

} // namespace serve
