// What must hold in every State, whoever made it: the writer checks what it is given
// (Status::invalid_argument), the reader what it has read (Status::corrupt). Knows no file.
#pragma once

#include "format/layout.h"
#include "format/state/error.h"
#include "format/state/state.h"
#include "format/state/watch.h"

namespace stasis::format {

// Sizes in range, groups that hold every layer exactly once. Until this has passed, no size of the
// state may be used for arithmetic or allocation.
void check_geometry(const State &state, Status status);

// The stored pages of one group at a position: released ones come first, then stored ones, and what
// the window needs is stored. `evicted`: evicted_pages(state).
void check_stored(const State &state, size_t group, uint64_t position,
                  const std::vector<bool> &evicted, const std::vector<bool> &stored, Status status);

// The entry of one page of a table: valid slots, runs that lie in front of `end` and fill them one
// after the other, as many fingerprints as it must have. `state`: geometry checked, log there.
void check_entry(const State &state, size_t group, uint64_t index, const PageRecord &entry,
                 uint64_t end);

// Everything else, page data apart: log, settings, pages, hidden state, logits, texts, and last the
// state digest, computed again. Looks at the watch between them.
void check_state(const State &state, Status status, const Watch &watch = {});

} // namespace stasis::format
