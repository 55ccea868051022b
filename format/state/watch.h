// Progress and the early end of one long call, as plain data that every layer can pass on. The
// caller of the long operation owns it; it outlives the call.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

#include "format/state/error.h"

namespace stasis {

// Returns false to stop the call (Status::stopped). `done` and `total` are in the unit that the
// operation documents (positions, bytes).
using ProgressFunction = bool (*)(void *user, uint64_t done, uint64_t total);

// A moment of the monotonic clock.
struct Deadline {
    int64_t at_ns = INT64_MAX; // INT64_MAX: never

    // Returns the moment in so many milliseconds; 0, and more than a century: never.
    static Deadline in_ms(uint64_t ms) {
        constexpr uint64_t kCenturyMs = uint64_t{100} * 366 * 24 * 3600 * 1000;
        return ms == 0 || ms > kCenturyMs ? Deadline()
                                          : Deadline{now_ns() + static_cast<int64_t>(ms) * 1000000};
    }
    bool passed() const { return at_ns != INT64_MAX && now_ns() >= at_ns; }

  private:
    static int64_t now_ns() {
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC, &now);
        return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
    }
};

struct Watch {
    const std::atomic<bool> *cancel = nullptr; // set from any thread; null: cannot be cancelled
    ProgressFunction progress = nullptr;
    void *user = nullptr;
    Deadline deadline;

    // Returns whether the call should end early. Thread-safe.
    bool ends() const {
        return (cancel != nullptr && cancel->load(std::memory_order_acquire)) || deadline.passed();
    }
    // Throws Error(cancelled) or Error(timeout) if the call should end. Thread-safe.
    void look(uint64_t done, uint64_t total) const {
        if (cancel != nullptr && cancel->load(std::memory_order_acquire)) {
            fail(Status::cancelled, "cancelled by the caller at %llu of %llu",
                 static_cast<Number>(done), static_cast<Number>(total));
        }
        if (deadline.passed()) {
            fail(Status::timeout, "the call's time was over at %llu of %llu",
                 static_cast<Number>(done), static_cast<Number>(total));
        }
    }
    // Returns a watch that ends as this one does and reports no progress.
    Watch silent() const { return {cancel, nullptr, nullptr, deadline}; }

    // Reports progress; throws Error(cancelled), Error(timeout) or Error(stopped) if the call
    // should end.
    void step(uint64_t done, uint64_t total) const {
        look(done, total);
        if (progress != nullptr && !progress(user, done, total)) {
            fail(Status::stopped, "the progress callback asked to stop at %llu of %llu",
                 static_cast<Number>(done), static_cast<Number>(total));
        }
    }
};

// A watch for a part of an operation, which reports progress as that of the whole. The whole
// outlives it.
struct WatchPart {
    const Watch &whole;
    uint64_t begin, total;

    Watch watch() { return {whole.cancel, step, this, whole.deadline}; }
    static bool step(void *user, uint64_t done, uint64_t) {
        const auto &self = *static_cast<const WatchPart *>(user);
        return self.whole.progress == nullptr ||
               self.whole.progress(self.whole.user, self.begin + done, self.total);
    }
};

} // namespace stasis
