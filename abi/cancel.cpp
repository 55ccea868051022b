// Cancel handles, and the watches that calls make from them; see cancel.h.
#include "abi/cancel.h"

namespace stasis::abi {

namespace {

// One lock for both numbers, so that a reader never sees `done` of one report and `total` of
// another.
void set_progress(stasis_cancel &cancel, uint64_t done, uint64_t total) {
    const std::lock_guard lock(cancel.mutex);
    cancel.done = done;
    cancel.total = total;
}

} // namespace

HeldCancel::HeldCancel(stasis_cancel *cancel) : cancel_(cancel) {
    if (cancel_ != nullptr) {
        cancel_->references.fetch_add(1, std::memory_order_relaxed);
    }
}

HeldCancel::~HeldCancel() {
    stasis_cancel_release(cancel_);
}

CallWatch::CallWatch(const Caller &caller, stasis_cancel *cancel, stasis_progress_fn progress,
                     void *user, Deadline deadline)
    : caller_(caller), cancel_(cancel), progress_(progress), user_(user), deadline_(deadline) {
    if (cancel != nullptr) {
        set_progress(*cancel, 0, 0);
    }
}

Watch CallWatch::watch() {
    Watch watch;
    watch.cancel = cancel_.get() != nullptr ? &cancel_.get()->requested : nullptr;
    watch.progress = report;
    watch.user = this;
    watch.deadline = deadline_;
    return watch;
}

// Called by the runtime. Returns false if the host's callback asks to stop.
bool CallWatch::report(void *user, uint64_t done, uint64_t total) {
    const CallWatch &self = *static_cast<const CallWatch *>(user);
    if (self.cancel_.get() != nullptr) {
        set_progress(*self.cancel_.get(), done, total);
    }
    return self.progress_ == nullptr ||
           self.caller_.lend([&] { return self.progress_(self.user_, done, total); }) == 0;
}

} // namespace stasis::abi

stasis_status stasis_cancel_create(stasis_cancel **cancel, stasis_error *error) {
    return stasis::abi::enter(error, [&] {
        stasis::abi::require(cancel, "cancel");
        *cancel = new stasis_cancel;
    });
}

void stasis_cancel_request(stasis_cancel *cancel) {
    if (cancel != nullptr) {
        cancel->requested.store(true, std::memory_order_release);
    }
}

void stasis_cancel_reset(stasis_cancel *cancel) {
    if (cancel != nullptr) {
        cancel->requested.store(false, std::memory_order_release);
    }
}

void stasis_cancel_progress(const stasis_cancel *cancel, uint64_t *done, uint64_t *total) {
    uint64_t now[2] = {0, 0};
    if (cancel != nullptr) {
        const std::lock_guard lock(cancel->mutex);
        now[0] = cancel->done;
        now[1] = cancel->total;
    }
    if (done != nullptr) {
        *done = now[0];
    }
    if (total != nullptr) {
        *total = now[1];
    }
}

void stasis_cancel_release(stasis_cancel *cancel) {
    if (cancel != nullptr && cancel->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        delete cancel;
    }
}
