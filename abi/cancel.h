// The cancel handle, and the watch that a long call makes from it and from a progress callback.
// Must not know what the call computes.
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
    mutable std::mutex mutex; // guards `done` and `total`, which are written together
    uint64_t done = 0, total = 0;
};

namespace stasis::abi {

// Holds a reference to a handle, or to none, so that the host may release it meanwhile.
class HeldCancel {
  public:
    explicit HeldCancel(stasis_cancel *cancel);
    ~HeldCancel();
    HeldCancel(const HeldCancel &) = delete;
    HeldCancel &operator=(const HeldCancel &) = delete;
    stasis_cancel *get() const { return cancel_; }

  private:
    stasis_cancel *cancel_;
};

// Lives as long as the call.
class CallWatch {
  public:
    CallWatch(const Caller &caller, stasis_cancel *cancel, stasis_progress_fn progress, void *user,
              Deadline deadline);
    // Of options that have all of it. Their time begins now.
    template <typename Options>
    CallWatch(const Caller &caller, const Options &given)
        : CallWatch(caller, given.cancel, given.progress, given.progress_user,
                    Deadline::in_ms(given.timeout_ms)) {}
    CallWatch(const CallWatch &) = delete;
    CallWatch &operator=(const CallWatch &) = delete;

    // Returns the watch of the call. It refers to this object.
    Watch watch();

  private:
    static bool report(void *user, uint64_t done, uint64_t total);

    const Caller &caller_;
    const HeldCancel cancel_;
    stasis_progress_fn progress_;
    void *user_;
    const Deadline deadline_;
};

} // namespace stasis::abi
