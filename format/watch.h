// Progress and cancellation of one long call, as plain data that every layer can pass on.
// Owned by the caller of the long operation; outlives the call.
#pragma once

#include <atomic>
#include <cstdint>

#include "format/error.h"

namespace stasis {

// Returns false to stop the call (Status::stopped). `done` and `total` are in the unit that the
// operation documents (positions, bytes).
using ProgressFunction = bool (*)(void *user, uint64_t done, uint64_t total);

struct Watch {
    const std::atomic<bool> *cancel = nullptr; // set from any thread; null: cannot be cancelled
    ProgressFunction progress = nullptr;
    void *user = nullptr;

    // Throws Error(cancelled) if the call should end.
    void look(uint64_t done, uint64_t total) const {
        if (cancel != nullptr && cancel->load(std::memory_order_acquire)) {
            fail(Status::cancelled, "cancelled by the caller at %llu of %llu",
                 static_cast<unsigned long long>(done), static_cast<unsigned long long>(total));
        }
    }

    // Reports progress; throws Error(cancelled) or Error(stopped) if the call should end.
    void step(uint64_t done, uint64_t total) const {
        look(done, total);
        if (progress != nullptr && !progress(user, done, total)) {
            fail(Status::stopped, "the progress callback asked to stop at %llu of %llu",
                 static_cast<unsigned long long>(done), static_cast<unsigned long long>(total));
        }
    }
};

} // namespace stasis
