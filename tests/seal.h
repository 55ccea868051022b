// Makes a changed state vouch for itself again, as one who forges a file would.
#pragma once

#include "format/pages.h"
#include "format/state/state.h"

namespace stasis {

// Digests anew what pages and recurrent states in memory hold, and the state.
inline void seal(State &state) {
    for (uint32_t group = 0; group < state.pages.size(); ++group) {
        const size_t rows = format::page_rows(state, group);
        for (uint64_t index = 0; index < state.pages[group].size(); ++index) {
            Page &page = state.pages[group][index];
            if (page.data != nullptr) {
                page.digest = page_digest({group, index, page.data, rows, state.page_positions,
                                           page.valid, state.head_dim_of(group)});
            }
        }
    }
    for (RecurrentState &each : state.states) {
        if (each.data != nullptr) {
            each.digest =
                recurrent_state_digest(each.position, each.data, state.recurrent.numbers());
        }
    }
    state.digest = state_digest(state);
}

} // namespace stasis
