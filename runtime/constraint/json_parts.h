// JSON as parts of a grammar: what the kinds json and json_schema are made of. The policy on blanks
// and spellings is CONSTRAINTS.md's.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/constraint/grammar.h"
#include "runtime/constraint/json_text.h"

namespace stasis::constraint {

class JsonParts {
  public:
    explicit JsonParts(Grammar &grammar) : grammar_(grammar) {}

    // Nothing, a space, or the start of a line with its indentation.
    Part blank() { return grammar_.optional(call(blank_, "a blank", &JsonParts::make_blank)); }
    Part separator() { return grammar_.sequence({grammar_.literal(","), blank()}); }
    Part any() { return call(any_, "any value", &JsonParts::make_any); }
    Part string() { return call(string_, "a string", &JsonParts::make_string); }
    // One character of a string, in any spelling.
    Part character() { return call(character_, "a character", &JsonParts::make_character); }
    Part number() { return call(number_, "a number", &JsonParts::make_number); }
    Part integer() { return call(integer_, "an integer", &JsonParts::make_integer); }
    // An array or object of any elements, from `min` to `max` of them.
    Part array(Part element, uint32_t min, uint32_t max);
    Part object(Part pair, uint32_t min, uint32_t max);
    // A name with what follows it: `name` is spelled with its quotes.
    Part pair(Part name, Part value);
    Part any_object() { return call(object_, "any object", &JsonParts::make_object); }
    Part any_array() { return call(array_, "any array", &JsonParts::make_array); }
    // One value, its members in their order, with blanks where they may be.
    Part constant(const JsonValue &value);
    // A text of JSON in quotes: the names of members, the strings of an enumeration.
    Part quoted(std::string_view text);

  private:
    using Made = std::optional<Rule>;
    Part call(Made &rule, const char *name, Part (JsonParts::*make)());
    Part list(const char *open, Part element, uint32_t min, uint32_t max, const char *close);
    Part regex(std::string_view text);
    Part make_blank();
    Part make_any();
    Part make_string();
    Part make_character();
    Part make_number();
    Part make_integer();
    Part make_object();
    Part make_array();

    Grammar &grammar_;
    Made blank_, any_, string_, character_, number_, integer_, object_, array_;
};

} // namespace stasis::constraint
