// Well-formed UTF-8 (The Unicode Standard, table 3-7): where text stops being it.
#pragma once

#include <cstddef>
#include <string_view>

namespace stasis {

// Offset of the first byte that belongs to no well-formed character; text.size() if there is none.
size_t invalid_utf8(std::string_view text);

// Length of the longest prefix of `text` that does not end inside a UTF-8 character: what can be
// shown now while tokens are still coming. Bytes that can never become valid are not held back.
size_t complete_utf8(std::string_view text);

} // namespace stasis
