// The turns of a log of tokens, in a host's array, for sessions and snapshots alike; see
// stasis_data.h. Must not know either, nor templates.
#pragma once

#include "abi/options.h"
#include "format/state/state.h"

namespace stasis::abi {

// Returns whether a turn begins at a position, of which `entry` gives the TokenEntry.
template <typename Entry> bool begins_turn(uint64_t position, const Entry &entry) {
    const TokenEntry own = entry(position);
    return position == 0 || own.starts_turn() || own.role() != entry(position - 1).role();
}

// Returns the turn from `begin` on, in a log of `size` positions.
template <typename Entry> stasis_turn turn_from(uint64_t begin, uint64_t size, const Entry &entry) {
    stasis_turn turn{};
    turn.role = static_cast<uint32_t>(TokenEntry(entry(begin)).role());
    turn.begin = begin;
    turn.end = begin;
    bool found = false; // a token that is not the template's
    for (; turn.end < size && (turn.end == begin || !begins_turn(turn.end, entry)); ++turn.end) {
        const TokenSource source = TokenEntry(entry(turn.end)).source;
        if (source == TokenSource::templated) {
            continue;
        }
        if (!found) {
            turn.content_begin = turn.end;
        }
        turn.content_end = turn.end + 1;
        // A reply that was drawn is one even where the host began it, and a message where tokens
        // follow it.
        const bool more = source == TokenSource::sampled ||
                          (source == TokenSource::text && turn.source != STASIS_SOURCE_SAMPLED);
        turn.source = !found || more ? static_cast<uint32_t>(source) : turn.source;
        found = true;
    }
    if (!found) {
        turn.source = STASIS_SOURCE_TEMPLATE;
        turn.content_begin = turn.content_end = turn.end;
    }
    return turn;
}

// Writes the turns of a log of `size` positions from the one that `begin` is in.
template <typename Entry>
void write_turns(uint64_t size, uint64_t begin, stasis_turn *turns, size_t stride, size_t capacity,
                 size_t *count, const Entry &entry) {
    require(count, "count");
    require_stride<stasis_turn>(stride);
    if (begin > size) {
        fail(Status::invalid_argument, "begin is %llu: the log has %llu tokens", Number{begin},
             Number{size});
    }
    uint64_t first = begin;
    while (first < size && !begins_turn(first, entry)) {
        --first;
    }
    size_t needed = 0;
    for (uint64_t at = first; at < size; ++at) {
        needed += at == first || begins_turn(at, entry) ? 1 : 0;
    }
    require_room(needed, capacity, count, "the array");
    require_array(turns, needed, "turns");
    for (size_t i = 0; i < needed; ++i) {
        const stasis_turn turn = turn_from(first, size, entry);
        write_element(turn, turns, stride, i);
        first = turn.end;
    }
}

} // namespace stasis::abi
