// Runs of the token log that have one origin: what a reader of a log wants to see.
#pragma once

#include <cstdint>
#include <vector>

#include "format/state/state.h"

namespace stasis::format {

// Neighbouring tokens of the same source, role and sampling settings; a turn begins a new span.
struct Span {
    uint64_t begin = 0;
    uint64_t end = 0;
    TokenSource source = TokenSource::prompt;
    Role role = Role::none;
    bool turn_start = false;
    uint16_t sampling = 0;
};

// The span from a position on at which one begins; the first begins at 0.
Span span_from(const std::vector<TokenEntry> &log, uint64_t begin);

const char *source_name(TokenSource source); // "prompt", "template", "text", "sampled"
const char *role_name(Role role);            // "none", "system", "user", "assistant", "other"

} // namespace stasis::format
