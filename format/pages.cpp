// Page geometry, and the packing of partly filled pages; see pages.h.
#include "format/pages.h"

#include <algorithm>
#include <cassert>
#include <new>

#include "format/constants.h"
#include "format/state/bf16.h"

namespace stasis::format {

uint64_t page_count(uint64_t position, uint32_t page_positions) {
    return position / page_positions + (position % page_positions != 0 ? 1 : 0);
}

uint32_t page_valid(uint64_t position, uint32_t page_positions, uint64_t index) {
    assert(index < page_count(position, page_positions));
    const uint64_t rest = position - index * page_positions;
    return rest < page_positions ? static_cast<uint32_t>(rest) : page_positions;
}

bool page_needed(uint32_t window, uint64_t position, uint32_t page_positions, uint64_t index) {
    const uint64_t end = (index + 1) * page_positions;
    return window == 0 || end + window > position;
}

bool layers_differ(const State &state) {
    return !state.sharing.empty() ||
           std::any_of(state.groups.begin(), state.groups.end(), [](const LayerGroup &group) {
               return group.kv_heads != 0 || group.head_dim != 0;
           });
}

size_t page_rows(const State &state, size_t group) {
    return state.groups[group].layers.size() * 2 * state.kv_heads_of(group);
}

size_t page_elements(const State &state, size_t group) {
    return page_rows(state, group) * state.page_positions * state.head_dim_of(group);
}

uint64_t page_stored_bytes(const State &state, size_t group, uint32_t valid) {
    return uint64_t{page_rows(state, group)} * valid * state.head_dim_of(group) * sizeof(uint16_t);
}

RunShape run_shape(const State &state, size_t group, uint32_t slots) {
    return {page_rows(state, group), slots, state.head_dim_of(group)};
}

void pack_run(const State &state, size_t group, uint32_t begin, uint32_t slots,
              const uint16_t *data, uint16_t *packed) {
    assert(begin + slots <= state.page_positions);
    const size_t used = size_t{slots} * state.head_dim_of(group);
    const size_t full = size_t{state.page_positions} * state.head_dim_of(group);
    data += size_t{begin} * state.head_dim_of(group);
    for (size_t row = 0; row < page_rows(state, group); ++row) {
        std::copy_n(data + row * full, used, packed + row * used);
    }
}

void unpack_run(const State &state, size_t group, const Run &run, uint32_t to,
                const uint16_t *packed, uint32_t row_slots, uint16_t *data) {
    assert(run.first + run.used <= run.slots && to + run.used <= row_slots);
    const size_t dim = state.head_dim_of(group);
    const size_t full = row_slots * dim;
    for (size_t row = 0; row < page_rows(state, group); ++row) {
        std::copy_n(packed + (row * run.slots + run.first) * dim, run.used * dim,
                    data + row * full + to * dim);
    }
}

void clear_slots(const State &state, size_t group, uint32_t valid, uint16_t *data) {
    assert(valid <= state.page_positions);
    const size_t used = size_t{valid} * state.head_dim_of(group);
    const size_t full = size_t{state.page_positions} * state.head_dim_of(group);
    for (size_t row = 0; row < page_rows(state, group); ++row) {
        std::fill(data + row * full + used, data + (row + 1) * full, uint16_t{0});
    }
}

void check_page_finite(const State &state, size_t group, uint64_t index, const uint16_t *data,
                       uint32_t row_slots, Status status) {
    const uint32_t valid = state.pages[group][index].valid;
    assert(valid <= row_slots);
    const size_t used = size_t{valid} * state.head_dim_of(group);
    const size_t full = size_t{row_slots} * state.head_dim_of(group);
    for (size_t row = 0; row < page_rows(state, group); ++row, data += full) {
        if (!all_finite_bf16(data, used)) {
            const size_t at =
                static_cast<size_t>(std::find_if_not(data, data + used, is_finite_bf16) - data);
            fail(status,
                 "page %llu of layer group %zu: the bf16 bits %04x at position %llu are not a "
                 "finite number",
                 static_cast<Number>(index), group, data[at],
                 static_cast<Number>(index * state.page_positions + at / state.head_dim_of(group)));
        }
    }
}

std::shared_ptr<uint16_t> allocate_page(size_t elements) {
    constexpr std::align_val_t alignment{kAlignment};
    void *memory = ::operator new(elements * sizeof(uint16_t), alignment);
    return {static_cast<uint16_t *>(memory),
            [](uint16_t *data) { ::operator delete(data, alignment); }};
}

} // namespace stasis::format
