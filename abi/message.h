// Messages in the form that a host gets: valid UTF-8 in a field of fixed size. Must not know what
// they say.
#pragma once

#include <cstddef>
#include <string_view>

namespace stasis::abi {

// Writes a zero-terminated message into a field of `size` bytes. Bytes that are not UTF-8, as in
// some paths, are written as "\xNN". A message that is too long has "..." in place of a part of its
// middle, so that its end, which gives the reason, stays.
void write_message(std::string_view from, char *field, size_t size) noexcept;

} // namespace stasis::abi
