// Signs of life for clients of streams in which nothing is said for long. Must not know what they
// are.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace serve {

class Pinged {
  public:
    virtual ~Pinged() = default;
    // Sends a sign of life if nothing was sent since the last call. Must not throw.
    virtual void ping() = 0;
};

class Pinger {
  public:
    // Calls `ping` of each after each time of so many milliseconds, on a thread of its own.
    explicit Pinger(uint64_t milliseconds);

    // Until it is gone. Any thread.
    void add(std::weak_ptr<Pinged> pinged);

  private:
    void run(const std::stop_token &stop);
    void ping_all();

    uint64_t milliseconds_; // 0: none are sent
    std::mutex mutex_;
    std::condition_variable_any time_;
    std::vector<std::weak_ptr<Pinged>> pinged_;
    std::jthread thread_; // ends before all above
};

} // namespace serve
