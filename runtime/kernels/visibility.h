// The positions that a query sees (C5): those of its window up to its own, without those that its
// sequence has evicted. Positions are divided into blocks of kPagePositions slots, and the slots of
// a block are the bits of a mask. The same source serves the CPU, devices and code that plans their
// reads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/anywhere.h"
#include "runtime/kernels/table.h"

namespace stasis::kernels {

static_assert(kPagePositions == 64, "the slots of a block are the bits of a word");

// Returns the first position that a query at `position` sees. A window counts the query's own
// position; 0: it sees all.
STASIS_ANYWHERE uint64_t first_visible(uint64_t position, uint32_t window) {
    return window == 0 || position < window ? 0 : position - window + 1;
}

// Returns the last position that a query sees of a text of `end` positions, if it sees both ways.
STASIS_ANYWHERE uint64_t last_visible_both_ways(uint64_t position, uint32_t window, uint64_t end) {
    return window == 0 || end - position < window ? end - 1 : position + window - 1;
}

// Returns the slots of a block that hold the positions low .. high.
STASIS_ANYWHERE uint64_t slots_of(uint64_t low, uint64_t high, uint64_t block) {
    const uint64_t base = block * kPagePositions, end = base + kPagePositions - 1;
    const uint64_t from = low > base ? low : base, to = high < end ? high : end;
    return from > to ? 0 : (~uint64_t{0} >> (kPagePositions - 1 - (to - from))) << (from - base);
}

// Returns the slots of a block that a query at `position` sees, evicted ones among them.
STASIS_ANYWHERE uint64_t visible_slots(uint64_t position, uint32_t window, uint64_t block) {
    return slots_of(first_visible(position, window), position, block);
}

// Returns the slots of a block that are not evicted; `evicted` has masks of the first `count`
// blocks.
STASIS_ANYWHERE uint64_t held_slots(const uint64_t *evicted, uint64_t count, uint64_t block) {
    return block < count ? ~evicted[block] : ~uint64_t{0};
}

// The blocks that a query sees: `count` blocks from `first` on.
struct Blocks {
    uint64_t first, count;
};
STASIS_ANYWHERE Blocks visible_blocks(uint64_t position, uint32_t window) {
    const uint64_t first = first_visible(position, window) / kPagePositions;
    return {first, position / kPagePositions - first + 1};
}

} // namespace stasis::kernels
