// The shape of KV pages in memory and in the file: which exist, how many bytes they take, and the
// step from one order to the other for the last, partly filled page (FORMAT.md, "Pages"). Knows no
// file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "format/state.h"

namespace stasis::format {

// Pages that `position` tokens take.
uint64_t page_count(uint64_t position, uint32_t page_positions);
// Used slots of page `index`.
uint32_t page_valid(uint64_t position, uint32_t page_positions, uint64_t index);
// Whether the token at `position` sees a position of page `index`: such a page must be stored.
bool page_needed(uint32_t window, uint64_t position, uint32_t page_positions, uint64_t index);

// Sizes of a group's pages; `rows` are [layer of the group][key, value][kv_head].
size_t page_rows(const State &state, size_t group);
size_t page_elements(const State &state, size_t group); // of a page in memory
uint64_t page_stored_bytes(const State &state, size_t group, uint32_t valid);

// A row in memory has page_positions slots of head_dim numbers, in the file only the valid ones.
void pack_page(const State &state, size_t group, uint32_t valid, const uint16_t *data,
               uint16_t *packed);
// Unused slots become zero.
void unpack_page(const State &state, size_t group, uint32_t valid, const uint16_t *packed,
                 uint16_t *data);

// Memory for one page, aligned to kAlignment, its contents not yet set.
std::shared_ptr<uint16_t> allocate_page(size_t elements);

} // namespace stasis::format
