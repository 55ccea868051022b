// The parts of JSON; see json_parts.h.
#include "runtime/constraint/json_parts.h"

#include <string>
#include <utility>

#include "runtime/constraint/characters.h"
#include "runtime/constraint/regex.h"

namespace stasis::constraint {

Part JsonParts::call(Made &rule, const char *name, Part (JsonParts::*make)()) {
    if (!rule.has_value()) {
        rule = grammar_.add_rule(name); // before it is made: values contain values
        const Part body = (this->*make)();
        grammar_.rules[*rule].body = body;
    }
    return grammar_.call(*rule);
}

Part JsonParts::regex(std::string_view text) {
    return read_regex(grammar_, text, RegexUse::whole);
}

Part JsonParts::make_blank() {
    return regex(" |\\n[ \\t]{0,32}");
}

Part JsonParts::make_number() {
    return regex("-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+\\-]?[0-9]+)?");
}

Part JsonParts::make_integer() {
    return regex("-?(0|[1-9][0-9]*)");
}

Part JsonParts::make_character() {
    Characters plain;
    plain.add(0, 0x1F);
    plain.add('"', '"');
    plain.add('\\', '\\');
    return grammar_.choice({one_of(grammar_, plain.complement(), Spelling::utf8),
                            regex("\\\\([\"\\\\/bfnrt]|u([0-9a-cA-Ce-fE-F][0-9a-fA-F]{3}|"
                                  "[dD][0-7][0-9a-fA-F]{2}|"
                                  "[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}))")});
}

Part JsonParts::make_string() {
    return grammar_.sequence({grammar_.literal("\""),
                              grammar_.repeat(make_character(), 0, kUnbounded),
                              grammar_.literal("\"")});
}

Part JsonParts::make_any() {
    return grammar_.choice({grammar_.literal("null"), grammar_.literal("true"),
                            grammar_.literal("false"), number(), string(), any_array(),
                            any_object()});
}

Part JsonParts::make_array() {
    return array(any(), 0, kUnbounded);
}

Part JsonParts::make_object() {
    return object(pair(string(), any()), 0, kUnbounded);
}

Part JsonParts::pair(Part name, Part value) {
    return grammar_.sequence({name, grammar_.literal(":"), blank(), value});
}

Part JsonParts::array(Part element, uint32_t min, uint32_t max) {
    return list("[", element, min, max, "]");
}

Part JsonParts::object(Part pair, uint32_t min, uint32_t max) {
    return list("{", pair, min, max, "}");
}

Part JsonParts::list(const char *open, Part element, uint32_t min, uint32_t max,
                     const char *close) {
    if (max < min) {
        return grammar_.nothing();
    }
    std::vector<Part> parts = {grammar_.literal(open), blank()};
    if (max > 0) {
        const uint32_t more_min = min > 0 ? min - 1 : 0;
        const uint32_t more_max = max == kUnbounded ? kUnbounded : max - 1;
        const Part more =
            grammar_.repeat(grammar_.sequence({separator(), element}), more_min, more_max);
        const Part some = grammar_.sequence({element, more, blank()});
        parts.push_back(min > 0 ? some : grammar_.optional(some));
    }
    parts.push_back(grammar_.literal(close));
    return grammar_.sequence(std::move(parts));
}

Part JsonParts::quoted(std::string_view text) {
    return grammar_.literal("\"" + json_spelled(text) + "\"");
}

Part JsonParts::constant(const JsonValue &value) {
    using JsonKind = JsonValue::Kind;
    if (value.is(JsonKind::string)) {
        return quoted(value.text);
    }
    if (!value.is(JsonKind::array) && !value.is(JsonKind::object)) {
        return grammar_.literal(value.is(JsonKind::number) ? value.text : canonical(value));
    }
    const bool object = value.is(JsonKind::object);
    std::vector<Part> parts = {grammar_.literal(object ? "{" : "["), blank()};
    for (size_t i = 0; i < value.values.size(); ++i) {
        if (i > 0) {
            parts.push_back(separator());
        }
        const Part element = constant(value.values[i]);
        parts.push_back(object ? pair(quoted(value.keys[i]), element) : element);
    }
    if (!value.values.empty()) {
        parts.push_back(blank());
    }
    parts.push_back(grammar_.literal(object ? "}" : "]"));
    return grammar_.sequence(std::move(parts));
}

} // namespace stasis::constraint
