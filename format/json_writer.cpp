// See json_writer.h.
#include "format/json_writer.h"

#include <charconv>
#include <cmath>

namespace stasis {

namespace {

struct Character {
    size_t bytes; // of the character, or of the part of one that a single U+FFFD stands for
    bool valid;
};

// Unicode, table 3-7: what may follow a first byte; the second one's range depends on the first.
Character character_at(std::string_view text, size_t at) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
    const uint8_t first = byte(0);
    if (first < 0x80) {
        return {1, true};
    }
    if (first < 0xC2 || first > 0xF4) {
        return {1, false};
    }
    const size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    uint8_t low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
    uint8_t high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
    for (size_t i = 1; i < length; ++i) {
        if (at + i >= text.size() || byte(i) < low || byte(i) > high) {
            return {i, false};
        }
        low = 0x80;
        high = 0xBF;
    }
    return {length, true};
}

} // namespace

void JsonWriter::separate() {
    // Behind a bracket or a key there is nothing to part; every other value ends otherwise.
    if (!text_.empty() && text_.back() != '{' && text_.back() != '[' && text_.back() != ':') {
        text_ += ',';
    }
}

JsonWriter &JsonWriter::open(char bracket) {
    separate();
    text_ += bracket;
    return *this;
}

JsonWriter &JsonWriter::close(char bracket) {
    text_ += bracket;
    return *this;
}

JsonWriter &JsonWriter::word(std::string_view word) {
    separate();
    text_ += word;
    return *this;
}

JsonWriter &JsonWriter::key(std::string_view name) {
    separate();
    quote(name);
    text_ += ':';
    return *this;
}

JsonWriter &JsonWriter::value(std::string_view text) {
    separate();
    quote(text);
    return *this;
}

JsonWriter &JsonWriter::value(double value) {
    if (!std::isfinite(value)) {
        return null();
    }
    char digits[32]; // 24 at most
    char *end = std::to_chars(digits, digits + sizeof digits, value).ptr;
    const std::string_view shortest(digits, static_cast<size_t>(end - digits));
    word(shortest);
    if (shortest.find_first_of(".e") == shortest.npos) {
        text_ += ".0"; // readers that tell integers apart see that it is none
    }
    return *this;
}

void JsonWriter::quote(std::string_view text) {
    static constexpr char kHex[] = "0123456789abcdef";
    text_ += '"';
    for (size_t at = 0; at < text.size();) {
        const Character character = character_at(text, at);
        const char c = text[at];
        const size_t named = std::string_view("\b\t\n\f\r\"\\").find(c);
        if (!character.valid) {
            text_ += "\uFFFD";
        } else if (named != std::string_view::npos) {
            text_ += '\\';
            text_ += "btnfr\"\\"[named];
        } else if (static_cast<uint8_t>(c) < 0x20) {
            text_ += "\\u00";
            text_ += kHex[static_cast<uint8_t>(c) >> 4];
            text_ += kHex[c & 15];
        } else {
            text_ += text.substr(at, character.bytes);
        }
        at += character.bytes;
    }
    text_ += '"';
}

} // namespace stasis
