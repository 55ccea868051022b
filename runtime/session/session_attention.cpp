// The attention that a session's positions have received, told, and computed again where the log
// was cut or loaded; see session.h.
#include "runtime/compute/forward.h"
#include "runtime/kernels/received.h"
#include "runtime/session/session.h"

namespace stasis {

AttentionSums tracked_sums(const Model &model, const SessionOptions &options, uint64_t capacity) {
    const uint64_t heads = uint64_t{model.config.layers} * model.config.heads;
    if (options.tracking != Tracking::off && capacity * heads >= kernels::kReceivedLimit) {
        fail(Status::unsupported,
             "attention of %llu positions by %llu heads of all layers cannot be added up: the sums "
             "hold for a capacity of %llu",
             static_cast<Number>(capacity), static_cast<Number>(heads),
             static_cast<Number>((kernels::kReceivedLimit - 1) / heads));
    }
    return {options.tracking, static_cast<size_t>(heads)};
}

size_t Session::received_heads(bool by_head) const {
    if (sums_.tracking() == Tracking::off) {
        fail(Status::unsupported, "the session does not track attention: create or load it with "
                                  "stasis_session_options.track_attention");
    }
    if (by_head && sums_.tracking() != Tracking::by_head) {
        fail(Status::unsupported,
             "the session tracks attention in total: by head it needs track_attention = "
             "STASIS_TRACK_BY_HEAD");
    }
    return by_head ? sums_.rows() : 1;
}

void Session::received(bool by_head, std::vector<uint64_t> &sums) {
    const size_t heads = received_heads(by_head);
    recompute_sums();
    const uint64_t end = log_.size();
    sums.assign(heads * end, 0);
    for (size_t row = 0; row < sums_.rows(); ++row) {
        for (uint64_t position = 0; position < end; ++position) {
            sums[(by_head ? row * end : 0) + position] += sums_.at(position, row);
        }
    }
}

// The one way to sums that were not added up as the log grew: the log once more, in a session of
// its own that is dropped.
void Session::recompute_sums() {
    if (sums_.known(log_.size())) {
        return;
    }
    SessionOptions options;
    options.capacity = capacity_;
    options.window_retain = 0;
    options.tracking = sums_.tracking();
    Session again(model_, options);
    std::vector<TokenEntry> entries(log_.size());
    for (uint64_t i = 0; i < entries.size(); ++i) {
        entries[i] = log_[i];
    }
    RunOptions run;
    run.schedule = &profile_;
    again.replay(entries, evictions_, run);
    sums_ = std::move(again.sums_);
}

} // namespace stasis
