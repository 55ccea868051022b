// Conversions; see wide_text.h.
#include "tools/cli/chat/wide_text.h"

#include <cstdint>

namespace command::chat {

namespace {

constexpr uint32_t kByte = 0xDC00; // + a byte from 0x80 on, which is not UTF-8

// Returns the character that `text` begins with, of `size` bytes; kByte + the first byte if it does
// not begin with one.
uint32_t decode(std::string_view text, size_t size) {
    static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    const auto lead = static_cast<unsigned char>(text[0]);
    if (lead < 0x80) {
        return lead;
    }
    if (size < 2 || size > text.size()) {
        return kByte + lead;
    }
    uint32_t point = lead & (0x7FU >> size);
    for (size_t i = 1; i < size; ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if ((byte & 0xC0) != 0x80) {
            return kByte + lead;
        }
        point = point << 6 | (byte & 0x3F);
    }
    const bool valid = lead < 0xF8 && point >= kLeast[size] && point <= 0x10FFFF &&
                       (point < 0xD800 || point > 0xDFFF);
    return valid ? point : kByte + lead;
}

bool is_byte(uint32_t point) {
    return point >= kByte + 0x80 && point <= kByte + 0xFF;
}

} // namespace

size_t character_bytes(unsigned char lead) {
    return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

std::wstring widen(std::string_view text) {
    std::wstring wide;
    while (!text.empty()) {
        const size_t size = character_bytes(static_cast<unsigned char>(text[0]));
        const uint32_t point = decode(text, size);
        wide += static_cast<wchar_t>(point);
        text.remove_prefix(is_byte(point) ? 1 : size);
    }
    return wide;
}

std::string narrow(std::wstring_view wide) {
    std::string text;
    for (const wchar_t each : wide) {
        const auto point = static_cast<uint32_t>(each);
        if (point < 0x80) {
            text += static_cast<char>(point);
        } else if (is_byte(point)) {
            text += static_cast<char>(point - kByte);
        } else if (point < 0x800) {
            text += static_cast<char>(0xC0 | point >> 6);
            text += static_cast<char>(0x80 | (point & 0x3F));
        } else if (point < 0x10000) {
            text += static_cast<char>(0xE0 | point >> 12);
            text += static_cast<char>(0x80 | (point >> 6 & 0x3F));
            text += static_cast<char>(0x80 | (point & 0x3F));
        } else {
            text += static_cast<char>(0xF0 | point >> 18);
            text += static_cast<char>(0x80 | (point >> 12 & 0x3F));
            text += static_cast<char>(0x80 | (point >> 6 & 0x3F));
            text += static_cast<char>(0x80 | (point & 0x3F));
        }
    }
    return text;
}

} // namespace command::chat
