// Unicode's normal form C (UAX #15), through utf8proc, with a map from positions in the composed
// text to positions in the original. Knows no tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stasis {

// Returns false if the text is in form C already because all its characters are below U+0300.
bool may_compose(std::string_view text);

struct ComposedText {
    std::string text;

    // Returns the bytes of the original from which bytes [begin, end) of the text come. If
    // composing changed a stretch, returns the whole stretch.
    std::pair<size_t, size_t> origin(size_t begin, size_t end) const;

    struct Stretch { // up to the begin of the next
        size_t begin, original;
        bool changed;
    };
    std::vector<Stretch> stretches; // ascending; the last is empty and marks both ends
};

// Upper bound of the bytes of a text for each byte of its form C. (The largest ratio has U+0390: 7
// bytes for its 2, as U+1FBE, U+0308, U+0341.)
inline constexpr uint64_t kComposedFromMax = 4;

// Returns the form C of `text`, which is UTF-8.
ComposedText compose(std::string_view text);

} // namespace stasis
