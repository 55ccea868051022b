// A JSON value as a plain tree, made by parse_json (json_file.h) and read by the readers of a
// model's files. Freeing it needs no memory, so it cannot fail.
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

    // An integer outside both types is stored as double.
    std::variant<std::monostate, bool, uint64_t, int64_t, double, std::string, Array, Object> value;

    bool is_null() const { return value.index() == 0; }
    // Return the value if it is of that type, else null.
    const bool *boolean() const { return std::get_if<bool>(&value); }
    const uint64_t *count() const { return std::get_if<uint64_t>(&value); }
    const std::string *text() const { return std::get_if<std::string>(&value); }
    const Array *array() const { return std::get_if<Array>(&value); }
    const Object *object() const { return std::get_if<Object>(&value); }
    std::optional<double> number() const;     // the value of any number type
    const char *type_name() const;            // "null", "boolean", "number", "string", ...
    bool operator==(const Json &other) const; // compares numbers by value

    // Returns the member of an object; null if there is none, or if this is no object.
    const Json *find(std::string_view key) const;
    // The same, but a null member counts as absent.
    const Json *find_value(std::string_view key) const;
};

struct Json::Member {
    std::string key;
    Json value;
    bool operator==(const Member &other) const = default;
};

// Returns a value in JSON syntax.
std::string written(const Json &json);
// The same for messages: a long one is cut between characters.
std::string shown(const Json &json);

} // namespace stasis
