// What a stored state keeps of its pages, as functions of whoever knows where they lie: a file, a
// stream, memory. Page numbers are those of State::pages. Called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "format/state/state.h"

namespace stasis {

// A number in a page.
struct PagePlace {
    static constexpr uint32_t kNowhere = UINT32_MAX;

    uint64_t slot = 0;
    uint32_t layer = 0; // of the group
    uint32_t head = kNowhere;
    uint32_t part = kNowhere; // 0 keys, 1 values
};

struct StoredPages {
    // False: released before the save, or keys and values were not kept.
    std::function<bool(size_t group, uint64_t index)> stored;
    // Writes all of stored pages, in the order of State (Page), unused slots zero.
    std::function<void(std::span<const PageInto> pages)> read;
    // Where a computed page first differs from what is kept in place of one that is not stored;
    // none if that cannot be told.
    std::function<std::optional<PagePlace>(size_t group, uint64_t index, const uint16_t *computed)>
        locate;
    // Writes the numbers of State::states[index]. Null: they were not kept.
    std::function<void(size_t index, float *into)> read_state;
};

} // namespace stasis
