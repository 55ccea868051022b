// Spans: the parts of a token log that have one origin. Must not know files.
#pragma once

#include <cstdint>
#include <vector>

#include "format/state/state.h"

namespace stasis::format {

// Consecutive tokens of the same source, role and sampling settings; a turn begins a new span.
struct Span {
    uint64_t begin = 0;
    uint64_t end = 0;
    TokenSource source = TokenSource::prompt;
    Role role = Role::none;
    bool turn_start = false;
    uint16_t sampling = 0;
};

// Returns the span that begins at a position. The first span begins at 0, each other one at the end
// of the span before it.
Span span_from(const std::vector<TokenEntry> &log, uint64_t begin);

const char *source_name(TokenSource source); // "prompt", "template", "text", "sampled"
const char *role_name(Role role);            // "none", "system", "user", "assistant", "other"

} // namespace stasis::format
