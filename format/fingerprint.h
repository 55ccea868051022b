// Fingerprints of a page: 32 bits for each of its slots and for each layer, kept in place of keys
// and values (Keep::none), so that a recomputation that diverges can be told by its first position
// and layer (FORMAT.md, "Fingerprints"). Knows no file.
#pragma once

#include <cstdint>
#include <vector>

#include "format/state/state.h"

namespace stasis::format {

// The valid slots' (all layers of the group), then the layers' (all valid slots). `data` is a page
// in memory, of which a row has `row_slots` slots; `state` gives the rest of the geometry.
std::vector<uint32_t> page_fingerprints(const State &state, size_t group, uint32_t valid,
                                        const uint16_t *data, uint32_t row_slots);

} // namespace stasis::format
