// Pings in their time; see pinger.h.
#include "tools/serve/engine/pinger.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace serve {

Pinger::Pinger(uint64_t milliseconds) : milliseconds_(milliseconds) {
    constexpr uint64_t kDay = 24 * 3600 * 1000;
    milliseconds_ = std::min(milliseconds_, kDay);
    if (milliseconds_ != 0) {
        thread_ = std::jthread([this](const std::stop_token &stop) { run(stop); });
    }
}

void Pinger::add(std::weak_ptr<Pinged> pinged) {
    if (milliseconds_ == 0) {
        return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    pinged_.push_back(std::move(pinged));
}

void Pinger::run(const std::stop_token &stop) {
    while (!stop.stop_requested()) {
        {
            std::unique_lock<std::mutex> lock(mutex_);
            time_.wait_for(lock, stop, std::chrono::milliseconds(milliseconds_),
                           [] { return false; });
        }
        ping_all();
    }
}

// Without the lock: the last reference to one may be this thread's.
void Pinger::ping_all() {
    std::vector<std::shared_ptr<Pinged>> there;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        std::erase_if(pinged_, [&](const std::weak_ptr<Pinged> &one) {
            there.push_back(one.lock());
            return there.back() == nullptr;
        });
    }
    for (const std::shared_ptr<Pinged> &one : there) {
        if (one) {
            one->ping();
        }
    }
}

} // namespace serve
