// A pool of threads over one queue; see workers.h.
#include "tools/serve/engine/workers.h"

#include <algorithm>
#include <chrono>

namespace serve {

Workers::Workers(size_t threads, size_t most) : most_(most) {
    for (size_t i = 0; i < threads; ++i) {
        threads_.emplace_back([this] { serve(); });
    }
    if (threads < most) {
        watcher_ = std::thread([this] { watch(); });
    }
}

Workers::~Workers() {
    finish();
}

void Workers::finish() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
    }
    changed_.notify_all();
    came_.notify_all();
    if (watcher_.joinable()) { // before the threads that it adds
        watcher_.join();
    }
    for (std::thread &thread : threads_) {
        thread.join();
    }
    std::deque<std::function<void()>> late; // destroyed without the lock: it may hold what posts
    const std::lock_guard<std::mutex> lock(mutex_);
    threads_.clear();
    late.swap(waiting_);
}

void Workers::post(std::function<void()> work) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (closing_ && threads_.empty()) {
            return;
        }
        waiting_.push_back(std::move(work));
    }
    changed_.notify_one();
    came_.notify_one();
}

size_t Workers::waiting() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.size();
}

void Workers::watch() {
    constexpr std::chrono::milliseconds kPatience{100};
    std::unique_lock<std::mutex> lock(mutex_);
    while (threads_.size() < most_) {
        came_.wait(lock, [this] { return closing_ || !waiting_.empty(); });
        const uint64_t begun = begun_;
        came_.wait_for(lock, kPatience, [&] { return closing_ || begun_ != begun; });
        if (closing_) {
            return;
        }
        if (begun_ != begun || waiting_.empty()) {
            continue;
        }
        const size_t more = std::min(threads_.size(), most_ - threads_.size());
        try {
            for (size_t i = 0; i < more; ++i) {
                threads_.emplace_back([this] { serve(); });
            }
        } catch (const std::exception &) { // as many as there may be: the work waits
            return;
        }
    }
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
        ++begun_;
        lock.unlock();
        work();
        work = nullptr; // what it holds goes before the next
        lock.lock();
    }
}

} // namespace serve
