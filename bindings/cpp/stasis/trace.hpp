// Stasis for C++20: what happens to a session's keys and values. Included by stasis.hpp.
#pragma once

#include <functional>
#include <mutex>

#include "stasis/error.hpp"

namespace stasis {

using TraceEvent = stasis_trace_event;

// What Session::set_trace starts: a listener that is called with each event, or a queue of this
// many events, which Session::take_trace empties. The listener runs inside the call that it reports
// on, which goes on if it throws: the exception is thrown when that call has returned.
struct Trace {
    std::function<void(const TraceEvent &event)> listener = {};
    std::uint64_t queue_events = 0;
    bool reads = false; // report reads of pages too
};

// Events that have waited, and how many were lost after them.
struct Traced {
    std::vector<TraceEvent> events;
    std::uint64_t lost = 0;
};

namespace detail {

// A trace as long as its session lives, and what its listener throws meanwhile.
class Listener {
  public:
    explicit Listener(Trace trace) : trace_(std::move(trace)) {}

    // The options refer to this object.
    stasis_trace_options raw() noexcept {
        auto raw = sized<stasis_trace_options>();
        raw.flags = trace_.reads ? STASIS_TRACE_READS : 0;
        raw.queue_events = trace_.queue_events;
        if (trace_.listener) {
            raw.callback = [](void *user, const stasis_trace_event *event) {
                static_cast<Listener *>(user)->hear(*event);
            };
            raw.user = this;
        }
        return raw;
    }

    // Throws what the listener has thrown since the last call.
    void rethrow() {
        std::exception_ptr thrown;
        {
            const std::lock_guard lock(mutex_);
            std::swap(thrown, thrown_);
        }
        if (thrown) {
            std::rethrow_exception(thrown);
        }
    }

  private:
    void hear(const TraceEvent &event) noexcept {
        try {
            trace_.listener(event);
        } catch (...) {
            const std::lock_guard lock(mutex_);
            thrown_ = std::current_exception();
        }
    }

    Trace trace_;
    std::mutex mutex_; // a scheduler's pass may run on another thread
    std::exception_ptr thrown_;
};

// Throws what a session's listener or a callback of the call has thrown, else Error if it failed.
inline void check(const std::shared_ptr<Listener> &listener, Call &call, stasis_status status) {
    if (listener) {
        listener->rethrow();
    }
    call.check(status);
}

} // namespace detail
} // namespace stasis
