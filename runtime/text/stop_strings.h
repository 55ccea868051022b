// Finds stop strings in text that arrives in pieces, and withholds text that may become one. Works
// on bytes; knows neither tokens nor UTF-8. The result depends on the text alone, never on how it
// was cut. The text stops at the first byte that completes a stop string. If the same byte
// completes several, the longest one, which begins first, is cut off.
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
    // Adds text. Returns how many bytes of all text so far are certain to be shown: all but the
    // longest end that is the beginning of a stop string. The result never falls from call to call.
    // After a match `stopped` is true, the shown text ends before the stop string, and later text
    // is ignored.
    size_t add(std::string_view text);
    // Ends the text: no text is withheld any more. Returns the bytes shown in all.
    size_t finish();
    bool stopped() const { return stopped_; }

  private:
    struct Pattern {
        std::string text;
        std::vector<size_t> border; // [i] longest proper prefix of text[0, i) that is its suffix
        size_t matched = 0;         // longest prefix that is the end of the text so far
    };
    static void advance(Pattern &pattern, char byte);

    std::vector<Pattern> patterns_;
    size_t added_ = 0; // bytes, up to and including the stop string
    size_t shown_ = 0;
    bool stopped_ = false;
};

} // namespace stasis
