// JSON as a schema needs it: members in the order of the text, numbers as they are written, the
// offset of each value for messages. The model's files have a reader of their own, which keeps
// neither (runtime/model/json_file.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stasis::constraint {

struct JsonValue {
    enum class Kind : uint8_t { null, boolean, number, string, array, object };
    Kind kind = Kind::null;
    bool boolean = false;
    size_t offset = 0;
    std::string text;              // of a string its text, of a number its spelling
    std::vector<JsonValue> values; // elements, or the members' values
    std::vector<std::string> keys; // the members' names

    // Returns the member of an object; null if there is none, or if this is no object.
    const JsonValue *find(std::string_view key) const;
    bool is(Kind other) const { return kind == other; }
};

// Parses one value strictly. Throws Error naming the offset: invalid_argument (no JSON, a name
// given twice), unsupported (nested too deep).
JsonValue read_json(std::string_view text);

// Returns a value in one spelling: members sorted, numbers without what does not change them. Equal
// values, as JSON schemas compare them, have equal texts.
std::string canonical(const JsonValue &value);

// A number as it is written, as digits with the place of the point: -12.50e1 is negative 125, and
// one digit after the point means a tenth.
struct Decimal {
    bool negative = false;
    std::string whole, fraction; // digits; no zeros before the first or after the last
    bool zero() const { return whole.empty() && fraction.empty(); }
};

// Returns the number that JSON's spelling means. Throws Error(unsupported) for an exponent beyond
// 400.
Decimal decimal(const JsonValue &number);

} // namespace stasis::constraint
