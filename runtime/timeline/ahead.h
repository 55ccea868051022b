// Rows that are computed before their tokens are known to enter the log. They are stored in pages
// after the end of the timeline, which no query sees, until they are taken or dropped. States of
// recurrent layers are not stored row by row: that after the last row is computed with the rows,
// and that after an earlier one, at which the rest is dropped, from what the pass has kept.
#pragma once

#include <span>

#include "runtime/compute/backend.h"
#include "runtime/timeline/timeline.h"

namespace stasis {

// The rows of a pass that begin at the end of a log.
struct RowsAhead {
    uint64_t begin = 0; // position of the first
    size_t rows = 0;
    // Of recurrent layers: before the first row (none: at the beginning of the log), which the
    // timeline may drop meanwhile, and memory for the state after the last row taken.
    StateRef before, after;
};

// Returns how many rows may be computed ahead: up to the capacity, and with recurrent layers up to
// the next checkpoint.
uint64_t most_ahead(const Timeline &timeline);

// Computes rows for entries that may follow the log: keys and values into pages, final hidden
// states into `pass`. With `run`, only the first token of `entries` is used; the device draws the
// others by `sampling`, and `run` stores failures. Expects the state of recurrent layers to be
// held. Throws as append does. Strong guarantee.
RowsAhead compute_ahead(Timeline &timeline, std::span<const TokenEntry> entries, Pass &pass,
                        const Sampling &sampling = {}, DrawnRows *run = nullptr);

// Appends the entry of the next computed row, whose final hidden state is `hidden`. With recurrent
// layers the state after it is missing until the rest is dropped, unless it is the last. Strong
// guarantee.
void take_ahead(Timeline &timeline, RowsAhead &ahead, const TokenEntry &entry,
                const uint16_t *hidden);

// Drops the rows that were not taken; `pass` is the one that computed them, and has computed
// nothing since.
void drop_ahead(Timeline &timeline, RowsAhead &ahead, Pass &pass) noexcept;

} // namespace stasis
