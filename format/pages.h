// The shape of KV pages in memory and in the file: which exist, how many bytes they take, the step
// between the order of a page and that of a run of its slots (FORMAT.md, "Pages"), and the one
// condition on its numbers. Knows no file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "format/layout.h"
#include "format/planes.h"
#include "format/state/error.h"
#include "format/state/state.h"

namespace stasis::format {

// Pages that `position` tokens take.
uint64_t page_count(uint64_t position, uint32_t page_positions);
// Used slots of page `index`.
uint32_t page_valid(uint64_t position, uint32_t page_positions, uint64_t index);
// Whether page `index` must be stored: it holds a position >= position - window (or window is 0).
// That is one position more than the next token sees: the last token may be run again after a load.
bool page_needed(uint32_t window, uint64_t position, uint32_t page_positions, uint64_t index);

// Sizes of a group's pages; `rows` are [layer of the group][key, value][kv_head].
size_t page_rows(const State &state, size_t group);
size_t page_elements(const State &state, size_t group); // of a page in memory
uint64_t page_stored_bytes(const State &state, size_t group, uint32_t valid);

// The numbers of a range of slots of a page, as a codec sees them.
RunShape run_shape(const State &state, size_t group, uint32_t slots);
// Gathers the slots [begin, begin + slots) of a page in memory, where a row has page_positions
// slots, into the order of a run, where it has only these.
void pack_run(const State &state, size_t group, uint32_t begin, uint32_t slots,
              const uint16_t *data, uint16_t *packed);
// Puts the used slots of a run into a page of which a row has `row_slots`, from slot `to` on.
void unpack_run(const State &state, size_t group, const Run &run, uint32_t to,
                const uint16_t *packed, uint32_t row_slots, uint16_t *data);
// Slots from `valid` on become zero.
void clear_slots(const State &state, size_t group, uint32_t valid, uint16_t *data);

// Refuses keys and values of valid slots that are infinite or NaN: they are not state (C9). Names
// group, page and position. A row of the page has `row_slots` slots.
void check_page_finite(const State &state, size_t group, uint64_t index, const uint16_t *data,
                       uint32_t row_slots, Status status);

// Memory for one page, aligned to kAlignment, its contents not yet set.
std::shared_ptr<uint16_t> allocate_page(size_t elements);

} // namespace stasis::format
