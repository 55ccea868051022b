// Escaping and UTF-8 of JSON texts; see json_writer.h.
#include "format/state/json_writer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace stasis {

namespace {

// A character at a place of a text.
struct Character {
    size_t bytes; // of the character, or of the part of one that a single U+FFFD replaces
    bool valid;
    bool cut = false; // the text ends in the middle of it
};

// Returns the character at `at`. The range of the second byte depends on the first, see Unicode,
// table 3-7.
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
        if (at + i >= text.size()) {
            return {i, false, true};
        }
        if (byte(i) < low || byte(i) > high) {
            return {i, false};
        }
        low = 0x80;
        high = 0xBF;
    }
    return {length, true};
}

} // namespace

void JsonWriter::put(std::string_view text) {
    if (!room_) {
        text_ += text;
    } else if (length_ < room_->size()) {
        std::copy_n(text.data(), std::min(text.size(), room_->size() - length_),
                    room_->data() + length_);
    }
    length_ += text.size();
    last_ = text.empty() ? last_ : text.back();
}

void JsonWriter::separate() {
    // After a bracket or a key no comma is needed; every other value ends with another character.
    if (last_ != '{' && last_ != '[' && last_ != ':') {
        put(",");
    }
}

JsonWriter &JsonWriter::open(char bracket) {
    separate();
    put({&bracket, 1});
    return *this;
}

JsonWriter &JsonWriter::close(char bracket) {
    put({&bracket, 1});
    return *this;
}

JsonWriter &JsonWriter::word(std::string_view word) {
    separate();
    put(word);
    return *this;
}

JsonWriter &JsonWriter::key(std::string_view name) {
    value(name);
    put(":");
    return *this;
}

JsonWriter &JsonWriter::value(std::string_view text) {
    return begin_text().part(text).end_text();
}

JsonWriter &JsonWriter::begin_text() {
    separate();
    put("\"");
    return *this;
}

// The first bytes of a split character wait in begun_ until the next part completes it.
JsonWriter &JsonWriter::part(std::string_view text) {
    if (begun_.empty()) {
        begun_ = quote(text, false);
    } else {
        const std::string whole = begun_ + std::string(text);
        begun_ = quote(whole, false);
    }
    return *this;
}

JsonWriter &JsonWriter::end_text() {
    quote(begun_, true);
    begun_.clear();
    put("\"");
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
        put(".0"); // readers that distinguish integers must not take it for one
    }
    return *this;
}

// Writes the complete characters of a text, and all of it if `last`. Returns the rest.
std::string_view JsonWriter::quote(std::string_view text, bool last) {
    static constexpr char kHex[] = "0123456789abcdef";
    size_t plain = 0; // begin of the bytes that are copied unchanged
    for (size_t at = 0; at < text.size();) {
        const Character character = character_at(text, at);
        const char c = text[at];
        const size_t named = std::string_view("\b\t\n\f\r\"\\").find(c);
        const bool control = static_cast<uint8_t>(c) < 0x20;
        // A character that may be completed by the next part.
        if (character.cut && !last) {
            put(text.substr(plain, at - plain));
            return text.substr(at);
        }

        const size_t next = at + character.bytes;
        if (!character.valid || control || named != std::string_view::npos) {
            put(text.substr(plain, at - plain));
            plain = next;
        }

        // One escape for an invalid part, a named control character or another one.
        if (!character.valid) {
            put("\uFFFD");
        } else if (named != std::string_view::npos) {
            put({std::array{'\\', "btnfr\"\\"[named]}.data(), 2});
        } else if (control) {
            const auto byte = static_cast<uint8_t>(c);
            put("\\u00");
            put({std::array{kHex[byte >> 4], kHex[byte & 15]}.data(), 2});
        }
        at = next;
    }
    put(text.substr(plain));
    return {};
}

} // namespace stasis
