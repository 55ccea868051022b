// UTF-8 and the wide characters of the line editor. Bytes that are not UTF-8 survive both ways:
// each is an unpaired surrogate, U+DC80 + its low seven bits. Must not know the editor.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace command::chat {

// Returns how many bytes the character that begins with this byte has, 1 to 4.
size_t character_bytes(unsigned char lead);
std::wstring widen(std::string_view text);
std::string narrow(std::wstring_view text);

} // namespace command::chat
