// Cutting the log into spans; see spans.h.
#include "format/spans.h"

#include "format/texts.h"

namespace stasis::format {

std::vector<Span> log_spans(const std::vector<TokenEntry> &log) {
    std::vector<Span> spans;
    for (uint64_t i = 0; i < log.size(); ++i) {
        const TokenEntry &entry = log[i];
        const bool goes_on =
            !spans.empty() && !entry.starts_turn() && spans.back().source == entry.source &&
            spans.back().role == entry.role() && spans.back().sampling == entry.sampling;
        if (!goes_on) {
            spans.push_back(
                {i, i, entry.source, entry.role(), entry.starts_turn(), entry.sampling});
        }
        spans.back().end = i + 1;
    }
    return spans;
}

std::string log_text(const State &state, uint64_t begin, uint64_t end) {
    std::string text;
    for (uint64_t i = begin; i < end; ++i) {
        text += token_text(state.token_texts, state.log[i].token);
    }
    return text;
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
