// Steps of several sessions: checks all items, holds their sessions and calls the runtime; see
// stasis_generate.h. Must not know how a step is computed.
#include <cassert>
#include <span>

#include "abi/handles.h"
#include "abi/options.h"
#include "abi/run.h"
#include "abi/trace.h"
#include "runtime/session/step.h"

namespace stasis::abi {

namespace {

// The caller's array of items, `stride` bytes apart. The constructor throws Error(invalid_argument)
// for a stride or a size that no version of the item has.
class Items {
  public:
    Items(stasis_step_item *items, size_t stride, size_t count)
        : first_(reinterpret_cast<char *>(items)), stride_(stride), count_(count) {
        require_array(items, count, "items");
        if (stride < sizeof(stasis_step_item) || stride % alignof(stasis_step_item) != 0) {
            fail(Status::invalid_argument, "stride is %zu, expected %zu", stride,
                 sizeof(stasis_step_item));
        }
        for (size_t i = 0; i < count; ++i) {
            const stasis_step_item &item = (*this)[i];
            const uint32_t size = struct_size(&item, sizeof item, "items");
            if (size < sizeof item || size > stride) {
                fail(Status::invalid_argument,
                     "items[%zu].struct_size is %u: expected %zu, and at most the stride of %zu", i,
                     size, sizeof item, stride);
            }
            read_struct(&item, "items"); // bytes after this version's fields must be 0
        }
    }
    size_t count() const { return count_; }
    stasis_step_item &operator[](size_t i) const {
        assert(i < count_);
        return *reinterpret_cast<stasis_step_item *>(first_ + i * stride_);
    }

  private:
    char *first_;
    size_t stride_, count_;
};

// Throws Error unless the item names a session and a range of the call's tokens.
void check_item(const stasis_step_item &item, size_t index, size_t token_count) {
    if (item.session == nullptr) {
        fail(Status::invalid_argument, "items[%zu].session is NULL", index);
    }
    require_flags(item.flags, STASIS_STEP_SAMPLE);
    if (item.begin > token_count || item.count > token_count - item.begin) {
        fail(Status::invalid_argument,
             "items[%zu]: tokens from %zu on, %zu of them, expected a range within the %zu tokens",
             index, item.begin, item.count, token_count);
    }
}

// Holds all sessions of a step, or throws Error(busy) and holds none.
class AllBusy {
  public:
    AllBusy(std::span<const StepItem> items, const Caller &caller) : items_(items) {
        try {
            for (; held_ < items_.size(); ++held_) {
                hold_session(session(items_[held_]), caller, Use::changes, !caller.nested());
            }
        } catch (...) {
            release();
            throw;
        }
    }
    ~AllBusy() { release(); }
    AllBusy(const AllBusy &) = delete;
    AllBusy &operator=(const AllBusy &) = delete;

  private:
    static const stasis_session &session(const StepItem &item) {
        return *static_cast<const stasis_session *>(item.owner);
    }
    void release() {
        for (const StepItem &item : items_.first(held_)) {
            release_session(session(item), Use::changes);
        }
    }

    std::span<const StepItem> items_;
    size_t held_ = 0;
};

// Fills an item's error and returns its status.
stasis_status report_item(const StepItem &item, stasis_error *error) noexcept {
    if (item.error == nullptr) {
        return report_success(error);
    }
    try {
        std::rethrow_exception(item.error);
    } catch (...) {
        return report_failure(error);
    }
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;

stasis_status stasis_sessions_step(stasis_step_item *items, size_t stride, size_t item_count,
                                   const stasis_token *tokens, size_t token_count,
                                   const stasis_run_options *options, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        // Check everything before a session is touched: a refused step changes no item.
        const Items given(items, stride, item_count);
        require_array(tokens, token_count, "tokens");
        for (size_t i = 0; i < item_count; ++i) {
            check_item(given[i], i, token_count);
        }

        Run run(caller, options);
        if (run.options().logits != nullptr) {
            fail(stasis::Status::invalid_argument, "options.logits: a step reports no logits");
        }
        if (item_count == 0) {
            return;
        }

        // Collect the runtime's items in buffers that the model keeps between steps.
        const stasis::StepLease buffers(*given[0].session->session->model());
        std::vector<stasis::StepItem> &steps = buffers->items;
        for (size_t i = 0; i < item_count; ++i) {
            const stasis_step_item &item = given[i];
            steps.push_back({item.session->session.get(),
                             {tokens + item.begin, item.count},
                             (item.flags & STASIS_STEP_SAMPLE) != 0});
            steps.back().owner = item.session;
        }

        stasis::check_step(steps); // first, or a session given twice would be busy with itself
        const AllBusy busy(steps, caller);
        stasis::run_step(steps, run.options());

        for (size_t i = 0; i < item_count; ++i) {
            given[i].token = steps[i].token;
            given[i].status = report_item(steps[i], given[i].error);
        }

        // A cancelled or stopped step ends the call with that status.
        for (const stasis::StepItem &item : steps) {
            if (item.ended_call) {
                std::rethrow_exception(item.error);
            }
        }
    });
}
