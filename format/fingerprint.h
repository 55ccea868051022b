// Fingerprints of a page: 32 bits for each of its slots and for each layer. They are kept in place
// of keys and values (Keep::none), so that a recomputation that diverges can report its first
// position and layer (FORMAT.md, "Fingerprints"). Must not know files.
#pragma once

#include <cstdint>
#include <vector>

#include "format/state/state.h"

namespace stasis::format {

// Returns the fingerprints of the valid slots (over all layers of the group), then those of the
// layers (over all valid slots). `data` is a page in memory whose rows have `row_slots` slots;
// `state` supplies the rest of the geometry.
std::vector<uint32_t> page_fingerprints(const State &state, size_t group, uint32_t valid,
                                        const uint16_t *data, uint32_t row_slots);

} // namespace stasis::format
