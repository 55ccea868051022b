// Checks for well-formed UTF-8 (The Unicode Standard, table 3-7).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stasis {

// Returns the offset of the first byte that belongs to no well-formed character; text.size() if
// there is none.
size_t invalid_utf8(std::string_view text);

// Returns the length of the longest prefix of `text` that does not end inside a UTF-8 character:
// the text that can be shown while more tokens follow. Bytes that can never become valid count as
// shown.
size_t complete_utf8(std::string_view text);

// Returns the text with U+FFFD in place of each byte that belongs to no well-formed character.
std::string well_formed_utf8(std::string_view text);

} // namespace stasis
