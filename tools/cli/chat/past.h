// The turns of a conversation: where each begins in the session's log, and those that a snapshot
// holds. Must not know sessions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/stored_sampling.h"

namespace command::chat {

struct Turn {
    uint64_t begin = 0;        // the position before it
    uint64_t reply = 0;        // where its last reply begins
    size_t messages = 0;       // of the conversation before it, where that is kept
    size_t reply_messages = 0; // before the last reply
    bool whole = true;         // the model ended its last reply itself
};

// What a conversation that goes on has behind it.
struct Past {
    std::vector<Turn> turns;
    std::string system;     // its system text
    uint64_t beginning = 0; // where the first turn begins: 0, or after the system text
    StoredSampling sampling;
};

// Returns the past of the conversation in a snapshot. Throws Failure.
Past read_past(const std::string &path);

} // namespace command::chat
