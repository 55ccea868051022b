// Messages as a host gets them: valid UTF-8, in a field of fixed size, with their end, which says
// why. Knows nothing of what they say.
#pragma once

#include <cstddef>
#include <string_view>

namespace stasis::abi {

// Writes a zero-terminated message. Bytes that are not UTF-8, as paths may have them, become
// "\xNN"; of one that is too long, as those with long paths are, "..." stands for a part of its
// middle.
void write_message(std::string_view from, char *field, size_t size) noexcept;

} // namespace stasis::abi
