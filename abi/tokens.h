// Copies a log of tokens with their sources to a host's arrays, for sessions and snapshots alike.
// Must not know either.
#pragma once

#include "abi/boundary.h"
#include "format/state/state.h"

namespace stasis::abi {

// Writes the entries from `begin` to the end of a log of `size` positions; `entry(position)`
// returns the TokenEntry of one. Either array may be null. Throws Error(invalid_argument) if
// `begin` exceeds `size`, Error(buffer_too_small) if the capacity does not suffice.
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
