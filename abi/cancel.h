// The cancel handle, and the watch that a long call makes of it and of a progress callback.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "abi/boundary.h"
#include "format/state/watch.h"

struct stasis_cancel {
    std::atomic<uint32_t> references{1};
    std::atomic<bool> requested{false}; // signal handlers set it
    static_assert(std::atomic<bool>::is_always_lock_free);
    mutable std::mutex mutex; // guards the two below, which belong together
    uint64_t done = 0, total = 0;
};

namespace stasis::abi {

// Lives as long as the call; keeps the handle alive meanwhile.
class CallWatch {
  public:
    CallWatch(const Caller &caller, stasis_cancel *cancel, stasis_progress_fn progress, void *user);
    ~CallWatch();
    CallWatch(const CallWatch &) = delete;
    CallWatch &operator=(const CallWatch &) = delete;

    Watch watch();

  private:
    static bool report(void *user, uint64_t done, uint64_t total);

    const Caller &caller_;
    stasis_cancel *cancel_;
    stasis_progress_fn progress_;
    void *user_;
};

} // namespace stasis::abi
