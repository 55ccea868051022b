// Finds stop strings in text that arrives in pieces, holding back what may yet become one.
// Works on bytes; knows neither tokens nor UTF-8. The verdict depends on the text alone, never on
// how it was cut: the text stops at the first byte that completes a stop string, and of several
// completed by the same byte the longest, which begins first, is the one cut off.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace stasis {

class StopStrings {
  public:
    // Throws Error(invalid_argument) naming the index of an empty string.
    explicit StopStrings(std::vector<std::string> strings);
    // Adds text; returns how many bytes of everything added so far are certain to be shown: all but
    // the longest end that is the beginning of a stop string. Never falls from call to call. After
    // a match `stopped` is true, the shown text ends before the stop string, and what follows is
    // ignored.
    size_t add(std::string_view text);
    // The text has ended: nothing is held back any more. Returns the bytes shown in all.
    size_t finish();
    bool stopped() const { return stopped_; }

  private:
    struct Pattern {
        std::string text;
        std::vector<size_t> border; // [i] longest proper prefix of text[0, i) that is its suffix
        size_t matched = 0;         // longest prefix that the text so far ends with
    };
    static void advance(Pattern &pattern, char byte);

    std::vector<Pattern> patterns_;
    size_t added_ = 0; // bytes, up to and with the stop string
    size_t shown_ = 0;
    bool stopped_ = false;
};

} // namespace stasis
