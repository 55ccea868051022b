// The accumulated attention of a timeline's positions (C10), computed again if the log was cut or
// loaded; see timeline.h.
#include "runtime/timeline/append.h"
#include "runtime/timeline/timeline.h"

namespace stasis {

size_t Timeline::received_heads(bool by_head) const {
    if (sums.tracking() == Tracking::off) {
        fail(Status::unsupported, "the session does not track attention: create or load it with "
                                  "stasis_session_options.track_attention");
    }
    if (by_head && sums.tracking() != Tracking::by_head) {
        fail(Status::unsupported,
             "the session tracks attention in total: by head it needs track_attention = "
             "STASIS_TRACK_BY_HEAD");
    }
    return by_head ? sums.rows() : 1;
}

void Timeline::received(bool by_head, std::vector<uint64_t> &into) {
    const size_t heads = received_heads(by_head);
    recompute_sums();
    const uint64_t end = log.size();
    into.assign(heads * end, 0);
    for (size_t row = 0; row < sums.rows(); ++row) {
        for (uint64_t position = 0; position < end; ++position) {
            into[(by_head ? row * end : 0) + position] += sums.at(position, row);
        }
    }
}

// Computes the sums of a log that did not grow with them, on a timeline of its own.
void Timeline::recompute_sums() {
    if (sums.known(log.size())) {
        return;
    }
    TimelineOptions options;
    options.capacity = capacity;
    options.window_retain = 0;
    options.tracking = sums.tracking();
    sums = std::move(computed_again(*this, log.size(), options, {}).sums);
}

} // namespace stasis
