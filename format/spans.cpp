// Cutting the log into spans; see spans.h.
#include "format/spans.h"

#include <cassert>

namespace stasis::format {

Span span_from(const std::vector<TokenEntry> &log, uint64_t begin) {
    assert(begin < log.size());
    const TokenEntry &first = log[begin];
    const auto goes_on = [&](const TokenEntry &entry) {
        return !entry.starts_turn() && entry.source == first.source &&
               entry.role() == first.role() && entry.sampling == first.sampling;
    };
    uint64_t end = begin + 1;
    while (end < log.size() && goes_on(log[end])) {
        ++end;
    }
    return {begin, end, first.source, first.role(), first.starts_turn(), first.sampling};
}

const char *source_name(TokenSource source) {
    static const char *names[] = {"prompt", "template", "text", "sampled"};
    return names[static_cast<size_t>(source)];
}

const char *role_name(Role role) {
    static const char *names[] = {"none", "system", "user", "assistant", "other"};
    return names[static_cast<size_t>(role)];
}

} // namespace stasis::format
