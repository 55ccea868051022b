// What a timeline of a length takes of memory, without computing it. Knows no weights.
#pragma once

#include <cstdint>

#include "runtime/timeline/timeline.h"

namespace stasis {

// Bytes, of a timeline that shares nothing and from which nothing was evicted.
struct Footprint {
    uint64_t kv_bytes = 0;      // of its pages
    uint64_t kv_most_bytes = 0; // at most, while appends with the default chunk get there
    uint64_t position_bytes = 0, global_position_bytes = 0; // of one position; in global layers
    uint64_t states = 0, state_bytes = 0; // of recurrent layers, as far as the budget allows
    uint64_t log_bytes = 0;               // nodes of the log and of page tables
    uint64_t tracking_bytes = 0;          // sums of attention, and the copy that grows next
    uint64_t fixed_bytes = 0;             // final hidden state, and logits once they were computed
};

// Returns the footprint of a timeline that is as `empty`, which has no tokens, once it has
// `positions`. Throws Error(invalid_argument) if they exceed its capacity.
Footprint footprint(const Timeline &empty, uint64_t positions);

} // namespace stasis
