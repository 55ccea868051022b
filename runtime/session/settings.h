// What a session saves beside its timeline: how its tokens were drawn, how the next ones will be,
// and a system text that waits for the first user's turn.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/state/state.h"
#include "runtime/kv/page_pool.h"

namespace stasis {

struct Settings {
    std::vector<Sampling> samplings; // entries of the log refer to them; some may be out of use
    Sampling sampling;               // for the next draw
    std::string pending_system;

    // Returns the index of `sampling` in `samplings`, where it is added if it is not there. May
    // remove settings that no entry of the log names, and renumber the log's entries: no entry may
    // be waiting to be appended. Throws Error(full). Strong guarantee.
    uint16_t index_of_sampling(TokenLog &log);

  private:
    void drop_unnamed(TokenLog &log);
};

} // namespace stasis
