// Rows that are computed before their tokens are known to enter the log. They are stored in pages
// after the end of the timeline, which no query sees, until they are taken or dropped.
#pragma once

#include <span>

#include "runtime/compute/backend.h"
#include "runtime/timeline/timeline.h"

namespace stasis {

// Computes rows for entries that may follow the log: keys and values into pages, final hidden
// states into `pass`. With `run`, only the first token of `entries` is used; the device draws the
// others by `sampling`, and `run` stores failures. Throws as append does. Strong guarantee.
void compute_ahead(Timeline &timeline, std::span<const TokenEntry> entries, Pass &pass,
                   const Sampling &sampling = {}, DrawnRows *run = nullptr);

// Appends the entry of the next computed row, whose final hidden state is `hidden`. Strong
// guarantee.
void take_ahead(Timeline &timeline, const TokenEntry &entry, const uint16_t *hidden);

// Drops the rows that were not taken.
void drop_ahead(Timeline &timeline) noexcept;

} // namespace stasis
