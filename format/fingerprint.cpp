// Hashing a page across its slots and along its layers; see fingerprint.h.
#include "format/fingerprint.h"

#include <algorithm>
#include <cassert>

#include "format/checksum.h"
#include "format/pages.h"

namespace stasis::format {

std::vector<uint32_t> page_fingerprints(const State &state, size_t group, uint32_t valid,
                                        const uint16_t *data, uint32_t row_slots) {
    assert(valid <= row_slots);
    const size_t rows = page_rows(state, group);
    const size_t layers = state.groups[group].layers.size();
    const size_t dim = state.head_dim_of(group);
    std::vector<uint32_t> prints;
    prints.reserve(valid + layers);
    std::vector<uint16_t> numbers(std::max(rows * dim, rows / layers * valid * dim));
    const auto add = [&](size_t count) {
        prints.push_back(
            static_cast<uint32_t>(checksum64(numbers.data(), count * sizeof(uint16_t))));
    };

    // Slots: all rows of one slot.
    for (uint32_t slot = 0; slot < valid; ++slot) {
        for (size_t row = 0; row < rows; ++row) {
            std::copy_n(data + (row * size_t{row_slots} + slot) * dim, dim,
                        numbers.data() + row * dim);
        }
        add(rows * dim);
    }

    // Layers: the valid slots of one layer's rows.
    const size_t layer_rows = rows / layers;
    for (size_t layer = 0; layer < layers; ++layer) {
        for (size_t row = 0; row < layer_rows; ++row) {
            std::copy_n(data + (layer * layer_rows + row) * row_slots * dim, size_t{valid} * dim,
                        numbers.data() + row * valid * dim);
        }
        add(layer_rows * valid * dim);
    }
    return prints;
}

} // namespace stasis::format
