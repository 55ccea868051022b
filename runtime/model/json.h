// A JSON value as a plain tree: what parse_json (json_file.h) makes and the readers of a model's
// files look through. Freeing it cannot fail, whatever memory there is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace stasis {

struct Json {
    struct Member;
    using Array = std::vector<Json>;
    using Object = std::vector<Member>; // ascending by key, each key once

    // Integers that neither of the two holds are doubles.
    std::variant<std::monostate, bool, uint64_t, int64_t, double, std::string, Array, Object> value;

    bool is_null() const { return value.index() == 0; }
    // The value if it is of that type, else null.
    const bool *boolean() const { return std::get_if<bool>(&value); }
    const uint64_t *count() const { return std::get_if<uint64_t>(&value); }
    const std::string *text() const { return std::get_if<std::string>(&value); }
    const Array *array() const { return std::get_if<Array>(&value); }
    const Object *object() const { return std::get_if<Object>(&value); }
    std::optional<double> number() const;     // of any kind
    const char *type_name() const;            // "null", "boolean", "number", "string", ...
    bool operator==(const Json &other) const; // numbers by what they are worth

    // The member of an object; null if there is none, or no object.
    const Json *find(std::string_view key) const;
    // The same, but a member that is null counts as absent.
    const Json *find_value(std::string_view key) const;
};

struct Json::Member {
    std::string key;
    Json value;
    bool operator==(const Member &other) const = default;
};

// A value as JSON spells it, for messages; long ones are cut, between characters.
std::string shown(const Json &json);

} // namespace stasis
