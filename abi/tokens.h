// Hands out a log of tokens with their sources, as sessions and snapshots both do.
#pragma once

#include "abi/boundary.h"
#include "format/state/state.h"

namespace stasis::abi {

// `entry(position)` gives the TokenEntry of each of `size` positions.
template <typename Entry>
void write_tokens(uint64_t size, uint64_t begin, stasis_token *tokens, uint8_t *sources,
                  size_t capacity, size_t *count, const Entry &entry) {
    require(count, "count");
    if (begin > size) {
        fail(Status::invalid_argument, "begin is %llu: the log has %llu tokens",
             static_cast<Number>(begin), static_cast<Number>(size));
    }
    require_room(size - begin, capacity, count, "the buffer");
    for (size_t i = 0; i < *count; ++i) {
        const TokenEntry at = entry(begin + i);
        if (tokens != nullptr) {
            tokens[i] = at.token;
        }
        if (sources != nullptr) {
            sources[i] = static_cast<uint8_t>(at.source);
        }
    }
}

} // namespace stasis::abi
