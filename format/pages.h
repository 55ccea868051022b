// The shape of KV pages in memory and in the file: which pages exist, their sizes, the conversion
// between the order of a page and that of a run of its slots (FORMAT.md, "Pages"), and the check
// that their numbers are finite. Must not know files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "format/layout.h"
#include "format/planes.h"
#include "format/state/error.h"
#include "format/state/state.h"

namespace stasis::format {

// Returns the number of pages for `position` tokens.
uint64_t page_count(uint64_t position, uint32_t page_positions);
// Returns the number of used slots of page `index`.
uint32_t page_valid(uint64_t position, uint32_t page_positions, uint64_t index);
// Returns whether page `index` must be stored: it holds a position >= position - window (or window
// is 0). That is one position more than the next token sees, because the last token may be computed
// again after a load.
bool page_needed(uint32_t window, uint64_t position, uint32_t page_positions, uint64_t index);

// Returns whether layers use the keys and values of others or have sizes of heads of their own:
// what kFeatureLayers says.
bool layers_differ(const State &state);

// Sizes of a group's pages; `rows` are [layer of the group][key, value][kv_head].
size_t page_rows(const State &state, size_t group);
size_t page_elements(const State &state, size_t group); // of a page in memory
uint64_t page_stored_bytes(const State &state, size_t group, uint32_t valid);

// Returns the shape of a range of slots of a page, as a codec needs it.
RunShape run_shape(const State &state, size_t group, uint32_t slots);
// Copies the slots [begin, begin + slots) of a page in memory, where a row has page_positions
// slots, to the order of a run, where a row has only these.
void pack_run(const State &state, size_t group, uint32_t begin, uint32_t slots,
              const uint16_t *data, uint16_t *packed);
// Copies the used slots of a run to a page whose rows have `row_slots` slots, from slot `to` on.
void unpack_run(const State &state, size_t group, const Run &run, uint32_t to,
                const uint16_t *packed, uint32_t row_slots, uint16_t *data);
// Sets the slots from `valid` on to zero.
void clear_slots(const State &state, size_t group, uint32_t valid, uint16_t *data);

// Checks that keys and values of valid slots are finite: infinities and NaN are not state (C9). A
// row of the page has `row_slots` slots. Throws Error(status) that names group, page and position.
void check_page_finite(const State &state, size_t group, uint64_t index, const uint16_t *data,
                       uint32_t row_slots, Status status);

// Returns memory for one page, aligned to kAlignment and not initialised.
std::shared_ptr<uint16_t> allocate_page(size_t elements);

} // namespace stasis::format
