// Progress and cancellation of one long call, as plain data that every layer can pass on. The
// caller of the long operation owns it; it outlives the call.
#pragma once

#include <atomic>
#include <cstdint>

#include "format/state/error.h"

namespace stasis {

// Returns false to stop the call (Status::stopped). `done` and `total` are in the unit that the
// operation documents (positions, bytes).
using ProgressFunction = bool (*)(void *user, uint64_t done, uint64_t total);

struct Watch {
    const std::atomic<bool> *cancel = nullptr; // set from any thread; null: cannot be cancelled
    ProgressFunction progress = nullptr;
    void *user = nullptr;

    // Throws Error(cancelled) if the call should end. Thread-safe.
    void look(uint64_t done, uint64_t total) const {
        if (cancel != nullptr && cancel->load(std::memory_order_acquire)) {
            fail(Status::cancelled, "cancelled by the caller at %llu of %llu",
                 static_cast<Number>(done), static_cast<Number>(total));
        }
    }

    // Reports progress; throws Error(cancelled) or Error(stopped) if the call should end.
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

    Watch watch() { return {whole.cancel, step, this}; }
    static bool step(void *user, uint64_t done, uint64_t) {
        const auto &self = *static_cast<const WatchPart *>(user);
        return self.whole.progress == nullptr ||
               self.whole.progress(self.whole.user, self.begin + done, self.total);
    }
};

} // namespace stasis
