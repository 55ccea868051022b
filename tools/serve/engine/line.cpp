// Who waits for memory; see line.h.
#include "tools/serve/engine/line.h"

#include <utility>
#include <vector>

namespace serve {

void Line::join(Who who, Go go) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!waiting_.empty()) { // then something runs
            waiting_.push_back({who, std::move(go)});
            return;
        }
        ++running_;
    }
    go();
}

void Line::ended() {
    std::vector<Go> next;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        --running_;
        stalled_ = 0;
        const size_t most = short_ ? 1 : 2;
        short_ = false;
        while (next.size() < most && !waiting_.empty()) {
            second_ = next.empty() ? nullptr : waiting_.front().who.one;
            next.push_back(std::move(waiting_.front().go));
            waiting_.pop_front();
            ++running_;
        }
    }
    for (const Go &go : next) {
        go();
    }
}

bool Line::wait(Who who, Go go, bool holds, bool moved) {
    Go next;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        stalled_ = moved ? 0 : stalled_;
        short_ = true;
        const bool first = holds || who.one == second_;
        second_ = who.one == second_ ? nullptr : second_;
        if (running_ > 1) {
            --running_;
            waiting_.insert(first ? waiting_.begin() : waiting_.end(), {who, std::move(go)});
            return true;
        }
        if (stalled_ >= waiting_.size()) {
            return false;
        }
        ++stalled_;
        waiting_.push_back({who, std::move(go)});
        next = std::move(waiting_.front().go);
        waiting_.pop_front();
    }
    next();
    return true;
}

void Line::release(const void *owner) {
    std::vector<Go> released;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (auto at = waiting_.begin(); at != waiting_.end();) {
            if (at->who.owner == owner) {
                released.push_back(std::move(at->go));
                at = waiting_.erase(at);
                ++running_;
            } else {
                ++at;
            }
        }
    }
    for (const Go &go : released) {
        go();
    }
}

size_t Line::waiting() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return waiting_.size();
}

} // namespace serve
