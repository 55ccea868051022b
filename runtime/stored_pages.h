// What a stored state keeps of its pages, as functions of whoever knows where they lie: a file, a
// stream, memory. Page numbers are those of State::pages. Called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

namespace stasis {

struct PlaceInPage {
    uint32_t slot = 0;
    uint32_t layer = 0; // of the model
};

struct StoredPages {
    // False: released before the save, or keys and values were not kept.
    std::function<bool(size_t group, uint64_t index)> stored;
    // Writes all of a stored page, in the order of State (Page), unused slots zero.
    std::function<void(size_t group, uint64_t index, uint16_t *data)> read;
    // Of a page that is not stored: what is kept in its place tells where a computed one differs
    // first; nothing, if nothing is.
    std::function<std::optional<PlaceInPage>(size_t group, uint64_t index,
                                             const uint16_t *computed)>
        tell;
};

} // namespace stasis
