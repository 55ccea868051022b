// Spelling out characters; see visible.h. Knows UTF-8 and the characters that terminals obey.
#include "tools/cli/visible.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace command {

namespace {

// The first character of a text and its bytes; 0 bytes if the text does not begin with valid UTF-8.
struct Character {
    uint32_t point = 0;
    size_t size_bytes = 0;
};

Character first_character(std::string_view text) {
    static constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800,
                                          0x10000}; // [size] smallest character of so many bytes
    const auto lead = static_cast<unsigned char>(text[0]);
    const size_t size = lead < 0x80 ? 1 : lead < 0xC0 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (size < 2 || size > text.size()) {
        return {lead, size == 1 ? size_t{1} : 0};
    }
    uint32_t point = lead & (0x7FU >> size);
    for (size_t i = 1; i < size; ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        if ((byte & 0xC0) != 0x80) {
            return {};
        }
        point = point << 6 | (byte & 0x3F);
    }
    const bool valid = lead < 0xF8 && point >= kLeast[size] && point <= 0x10FFFF &&
                       (point < 0xD800 || point > 0xDFFF);
    return {point, valid ? size : 0};
}

// Returns whether terminals obey a character: C0, DEL and C1; Bidi_Control and the separators of
// lines (Unicode, PropList.txt).
bool is_obeyed(uint32_t point) {
    return point < 0x20 || (point >= 0x7F && point < 0xA0) || point == 0x061C || point == 0x200E ||
           point == 0x200F || (point >= 0x2028 && point <= 0x202E) ||
           (point >= 0x2066 && point <= 0x2069);
}

} // namespace

std::string visible(std::string_view text, Lines lines) {
    std::string out;
    while (!text.empty()) {
        const Character next = first_character(text);
        const size_t size_bytes = std::max<size_t>(next.size_bytes, 1);
        const bool line = next.point == '\n' || next.point == '\t';
        char spelled[12] = "";
        if (next.size_bytes == 0) {
            std::snprintf(spelled, sizeof spelled, "\\x%02x", static_cast<unsigned char>(text[0]));
        } else if (line || next.point == '\r') {
            std::snprintf(spelled, sizeof spelled, "\\%c",
                          next.point == '\n'   ? 'n'
                          : next.point == '\t' ? 't'
                                               : 'r');
        } else if (is_obeyed(next.point)) {
            std::snprintf(spelled, sizeof spelled, "\\u%04x", next.point);
        }
        out += spelled[0] == '\0' || (line && lines == Lines::keep) ? text.substr(0, size_bytes)
                                                                    : std::string_view(spelled);
        text.remove_prefix(size_bytes);
    }
    return out;
}

} // namespace command
