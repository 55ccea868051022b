// A pool of threads over one queue; see workers.h.
#include "tools/serve/engine/workers.h"

namespace serve {

Workers::Workers(size_t threads) {
    for (size_t i = 0; i < threads; ++i) {
        threads_.emplace_back([this] { serve(); });
    }
}

Workers::~Workers() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
    }
    changed_.notify_all();
    for (std::thread &thread : threads_) {
        thread.join();
    }
}

void Workers::post(std::function<void()> work) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        waiting_.push_back(std::move(work));
    }
    changed_.notify_one();
}

size_t Workers::waiting() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.size();
}

void Workers::serve() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
        if (waiting_.empty()) {
            return;
        }
        std::function<void()> work = std::move(waiting_.front());
        waiting_.pop_front();
        lock.unlock();
        work();
        work = nullptr; // what it holds goes before the next
        lock.lock();
    }
}

} // namespace serve
