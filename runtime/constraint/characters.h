// Sets of characters, and how each is spelled in bytes: as UTF-8, or inside a string of JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/constraint/grammar.h"

namespace stasis::constraint {

// Unicode scalar values: code points without surrogates.
struct Characters {
    struct Range {
        uint32_t low = 0, high = 0;
        bool operator==(const Range &) const = default;
    };
    std::vector<Range> ranges; // in any order until normal()

    void add(uint32_t low, uint32_t high) { ranges.push_back({low, high}); }
    void add(const Characters &other);
    // Returns the same set as ascending ranges that do not touch, without surrogates.
    Characters normal() const;
    // Returns all scalar values that are not in the set.
    Characters complement() const;
    // Returns those that are in the other set too.
    Characters intersection(const Characters &other) const;
};

// Every scalar value.
Characters all_characters();

enum class Spelling : uint8_t {
    utf8,
    // As the text of a JSON string: one spelling for each character, itself where JSON permits it,
    // else its short escape, else \u00 and two digits in lower case.
    json,
};

// Returns a part that matches one character of the set. Of an empty set: no text.
Part one_of(Grammar &grammar, const Characters &set, Spelling spelling);

// Returns one character's bytes in UTF-8.
std::string utf8(uint32_t character);

// Decodes the character at `at`, which it moves behind it. Throws Error(invalid_argument) naming
// the offset of bytes that are no UTF-8.
uint32_t next_character(std::string_view text, size_t &at);

// Returns the one spelling of a string in JSON, without its quotes. The text is UTF-8.
std::string json_spelled(std::string_view text);

} // namespace stasis::constraint
