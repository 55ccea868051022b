// The members of a session that a snapshot stores beside its timeline: the settings that drew its
// tokens, the settings of the next draw, a system text that waits for the first user's turn, and
// the host's own data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format/state/state.h"
#include "runtime/kv/page_pool.h"

namespace stasis {

struct Settings {
    std::vector<Sampling> samplings; // entries of the log refer to them; some may be unused
    Sampling sampling;               // for the next draw
    std::string pending_system;
    std::shared_ptr<const HostData> host_data; // null: none

    // Returns the index of `sampling` in `samplings`, and adds it if it is missing. May remove
    // settings that no entry of the log names, and renumber the log's entries. So no entry may be
    // waiting to be appended. Throws Error(full). Strong guarantee.
    uint16_t index_of_sampling(TokenLog &log);

  private:
    size_t find() const;
    void follow();
    void drop_unnamed(TokenLog &log);

    // Hash and index of the first settings, of which the first ascend: a session whose every token
    // has settings of its own does not look at all of them for each.
    std::vector<std::pair<uint64_t, uint32_t>> by_hash_;
    size_t sorted_ = 0;
};

} // namespace stasis
