// Unicode's normal form C (UAX #15), through utf8proc, with the way back from places in the
// composed text to places in the original.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stasis {

// False: the text is in form C already, for all its characters lie below U+0300.
bool may_compose(std::string_view text);

struct ComposedText {
    std::string text;

    // The bytes of the original that bytes [begin, end) of the text come from. Where composing
    // changed a stretch, all of that stretch.
    std::pair<size_t, size_t> origin(size_t begin, size_t end) const;

    struct Stretch { // up to the next one's begin
        size_t begin, original;
        bool changed;
    };
    std::vector<Stretch> stretches; // ascending; the last is empty and stands at both ends
};

// A text has at most so many bytes for each byte of its form C. (U+0390 has the most, 7 for its 2,
// as U+1FBE, U+0308, U+0341.)
inline constexpr uint64_t kComposedFromMax = 4;

// `text` is UTF-8.
ComposedText compose(std::string_view text);

} // namespace stasis
