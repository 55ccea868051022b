// Random texts for round trips through tokenizers.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace stasis {

// Up to 40 characters, spaces among them, from all planes of Unicode.
inline std::string random_utf8(std::mt19937 &random) {
    static constexpr uint32_t kTop[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
    std::string out;
    for (uint32_t n = random() % 40; n > 0; --n) {
        uint32_t c = random() % 4 == 0 ? ' ' : random() % (kTop[random() % 4] + 1);
        if ((c >= 0xD800 && c < 0xE000) || c == 0x2581) { // U+2581 is how a space is spelled
            c = 'x';
        }
        if (c < 0x80) {
            out += static_cast<char>(c);
        } else if (c < 0x800) {
            out += static_cast<char>(0xC0 | c >> 6);
        } else if (c < 0x10000) {
            out += static_cast<char>(0xE0 | c >> 12);
            out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
        } else {
            out += static_cast<char>(0xF0 | c >> 18);
            out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
            out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
        }
        if (c >= 0x80) {
            out += static_cast<char>(0x80 | (c & 0x3F));
        }
    }
    return out;
}

} // namespace stasis
