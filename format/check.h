// The conditions on every State. The writer checks the states that it is given
// (Status::invalid_argument), the reader those that it has read (Status::corrupt). Must not know
// files.
#pragma once

#include "format/layout.h"
#include "format/state/error.h"
#include "format/state/state.h"
#include "format/state/watch.h"

namespace stasis::format {

// Checks that sizes are in range and that groups hold every layer that is not recurrent exactly
// once. Until this has
// passed, no size of the state may be used for arithmetic or allocation. Throws Error(status).
void check_geometry(const State &state, Status status);

// Checks which pages of one group are stored at a position: released pages come before stored ones,
// and every page that the window needs is stored. `evicted` is evicted_pages(state). Throws
// Error(status).
void check_stored(const State &state, size_t group, uint64_t position,
                  const std::vector<bool> &evicted, const std::vector<bool> &stored, Status status);

// Checks one entry of a page table: its valid slots, runs that end before `end` and fill the slots
// one after the other, and the number of its fingerprints. The state's geometry must have been
// checked and its log read. Throws Error(corrupt).
void check_entry(const State &state, size_t group, uint64_t index, const PageRecord &entry,
                 uint64_t end);

// Checks everything else except data of pages and recurrent states: log, settings, pages, hidden
// state, logits, texts, and last the state digest, which is computed again. Checks the watch
// between these. Throws Error(status), Error(cancelled), Error(stopped).
void check_state(const State &state, Status status, const Watch &watch = {});

} // namespace stasis::format
