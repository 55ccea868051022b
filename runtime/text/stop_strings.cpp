// Matches stop strings with one Knuth-Morris-Pratt automaton per string, so that no text is stored
// and a byte costs a few steps per string, however the text was cut. See stop_strings.h. Source:
// Knuth, Morris, Pratt, "Fast Pattern Matching in Strings", SIAM J. Comput. 6 (1977).
#include "runtime/text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "format/state/error.h"

namespace stasis {

StopStrings::StopStrings(std::vector<std::string> strings) {
    patterns_.reserve(strings.size());
    for (size_t index = 0; index < strings.size(); ++index) {
        if (strings[index].empty()) {
            fail(Status::invalid_argument, "stop string %zu is empty, expected at least one byte",
                 index);
        }
        Pattern pattern{std::move(strings[index]), {0, 0}, 0};
        // The borders are the automaton's own states over the string from its second byte on.
        for (size_t i = 1; i < pattern.text.size(); ++i) {
            advance(pattern, pattern.text[i]);
            pattern.border.push_back(pattern.matched);
        }
        pattern.matched = 0;
        patterns_.push_back(std::move(pattern));
    }
}

void StopStrings::advance(Pattern &pattern, char byte) {
    while (pattern.matched > 0 && pattern.text[pattern.matched] != byte) {
        pattern.matched = pattern.border[pattern.matched];
    }
    if (pattern.text[pattern.matched] == byte) {
        ++pattern.matched;
    }
}

size_t StopStrings::add(std::string_view text) {
    for (const char byte : text) {
        if (stopped_) {
            break;
        }
        ++added_;
        // The longest partial match is withheld; the longest complete one stops the text.
        size_t held = 0, completed = 0;
        for (Pattern &pattern : patterns_) {
            advance(pattern, byte);
            held = std::max(held, pattern.matched);
            if (pattern.matched == pattern.text.size()) {
                completed = std::max(completed, pattern.matched);
            }
        }
        stopped_ = completed > 0;
        shown_ = added_ - (stopped_ ? completed : held);
    }
    return shown_;
}

size_t StopStrings::finish() {
    if (!stopped_) {
        shown_ = added_;
    }
    return shown_;
}

} // namespace stasis
