// Evictions of a state: what a file keeps of them, what holds of them, and which slots of a page
// nobody sees any more (FORMAT.md, "Evictions"). Knows no attention.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "format/state/error.h"
#include "format/state/state.h"

namespace stasis::format {

// The bytes of the section; none where nothing was evicted.
std::vector<uint8_t> build_evictions(const State &state);
// Fills state.evictions, of a state whose geometry is known. Error(corrupt).
void parse_evictions(std::span<const uint8_t> bytes, State &state);

// Positions that exist and ascend, ranges that ascend, do not touch and lie before their position,
// nothing evicted twice, hidden states of the model's size and finite. Throws Error(status).
void check_evictions(const State &state, Status status);

// [page]: whether all its positions are evicted.
std::vector<bool> evicted_pages(const State &state);

} // namespace stasis::format
