// Evictions of a state: their bytes in a file, the conditions on them, and the pages of which they
// leave nothing visible (FORMAT.md, "Evictions"). Must not know attention.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/state/error.h"
#include "format/state/state.h"

namespace stasis::format {

// Returns the bytes of the section; none if nothing was evicted.
std::vector<uint8_t> build_evictions(const State &state);
// Fills state.evictions. The state's geometry must have been checked. Throws Error(corrupt).
void parse_evictions(std::span<const uint8_t> bytes, State &state);

// Checks that positions exist and ascend; that ranges ascend, do not touch each other and end
// before their position; that nothing is evicted twice; and that hidden states are finite and of
// the model's size. Throws Error(status).
void check_evictions(const State &state, Status status);

// Returns for each page whether all its positions are evicted, [page].
std::vector<bool> evicted_pages(const State &state);

} // namespace stasis::format
