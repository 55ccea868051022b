// What must hold in every State, whoever made it: the writer checks what it is given
// (Status::invalid_argument), the reader what it has read (Status::corrupt). Knows no file.
#pragma once

#include "format/error.h"
#include "format/state.h"

namespace stasis::format {

// Sizes in range, groups that hold every layer exactly once. Until this has passed, no size of the
// state may be used for arithmetic or allocation.
void check_geometry(const State &state, Status status);

// The stored pages of one group at a position: released ones come first, then stored ones, and what
// the window needs is stored.
void check_stored(const State &state, size_t group, uint64_t position,
                  const std::vector<bool> &stored, Status status);

// Everything else, page data apart: log, settings, pages, hidden state, logits, texts, and last the
// state digest, computed again.
void check_state(const State &state, Status status);

} // namespace stasis::format
