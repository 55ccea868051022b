// Who is told, and when; see deadlines.h.
#include "tools/serve/engine/deadlines.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace serve {

Deadlines::Deadlines(uint64_t milliseconds) {
    constexpr uint64_t kLongest = uint64_t{1} << 40; // some 35 years
    time_ = std::chrono::milliseconds(std::min(milliseconds, kLongest));
    if (milliseconds != 0) {
        thread_ = std::jthread([this](const std::stop_token &stop) { run(stop); });
    }
}

void Deadlines::add(std::weak_ptr<Timed> timed) {
    if (!thread_.joinable()) {
        return;
    }
    {
        constexpr size_t kFew = 64;
        const std::lock_guard<std::mutex> lock(mutex_);
        if (running_.size() >= std::max(kFew, 2 * swept_)) { // most have ended long before
            std::erase_if(running_, [](const Running &one) { return one.timed.expired(); });
            swept_ = running_.size();
        }
        running_.push_back({Clock::now() + time_, std::move(timed)});
    }
    changed_.notify_one();
}

void Deadlines::run(const std::stop_token &stop) {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!stop.stop_requested()) {
        if (running_.empty()) {
            changed_.wait(lock, stop, [this] { return !running_.empty(); });
            continue;
        }
        if (const Clock::time_point until = running_.front().until; Clock::now() < until) {
            changed_.wait_until(lock, stop, until, [] { return false; });
            continue; // the first may be another one by now
        }
        std::shared_ptr<Timed> late = running_.front().timed.lock();
        running_.pop_front();
        lock.unlock(); // the last reference to it may be this one
        if (late) {
            late->expire();
        }
        late = nullptr; // its end may take long, and add() waits for the lock
        lock.lock();
    }
}

} // namespace serve
