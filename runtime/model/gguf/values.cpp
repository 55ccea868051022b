// Looks up metadata by key and type (gguf.h).
#include "runtime/model/gguf/values.h"

#include <cinttypes>

#include "format/state/error.h"
#include "runtime/host/utf8.h"
#include "runtime/model/gguf/cursor.h"

namespace stasis {

namespace {

using Type = GgufValueType;

const GgufValue *find(const GgufFile &gguf, std::string_view key) {
    const auto found = gguf.metadata.find(key);
    return found == gguf.metadata.end() ? nullptr : &found->second;
}

std::string described(const GgufValue &value) {
    return value.type == Type::array ? "an array of " + std::string(gguf_value_name(value.element))
                                     : gguf_value_name(value.type);
}

[[noreturn]] void refuse(const GgufFile &gguf, std::string_view key, const GgufValue &value,
                         const char *expected) {
    fail(Status::corrupt, "%s: metadata %.*s: expected %s, found %s", gguf.names[0].c_str(),
         static_cast<int>(key.size()), key.data(), expected, described(value).c_str());
}

bool is_integer(Type type) {
    return type <= Type::i32 || type == Type::u64 || type == Type::i64;
}

GgufCursor cursor_of(const GgufFile &gguf, const GgufValue &value) {
    return {value.data, value.size_bytes, gguf.names[0]};
}

// Reads an integer of any width. The bits stay the same, so U64 from 2^63 on becomes negative.
int64_t read_integer(GgufCursor &cursor, Type type) {
    switch (type) {
    case Type::u8:
        return cursor.number<uint8_t>();
    case Type::i8:
        return cursor.number<int8_t>();
    case Type::u16:
        return cursor.number<uint16_t>();
    case Type::i16:
        return cursor.number<int16_t>();
    case Type::u32:
        return cursor.number<uint32_t>();
    case Type::i32:
        return cursor.number<int32_t>();
    default:
        return cursor.number<int64_t>();
    }
}

const GgufValue *find_array(const GgufFile &gguf, std::string_view key, bool (*fits)(Type),
                            const char *expected) {
    const GgufValue *value = find(gguf, key);
    if (value != nullptr && (value->type != Type::array || !fits(value->element))) {
        refuse(gguf, key, *value, expected);
    }
    return value;
}

} // namespace

size_t gguf_value_size(GgufValueType type) {
    static constexpr size_t kSizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kSizes[static_cast<size_t>(type)];
}

const char *gguf_value_name(GgufValueType type) {
    static constexpr const char *kNames[] = {"UINT8",  "INT8",    "UINT16", "INT16",  "UINT32",
                                             "INT32",  "FLOAT32", "BOOL",   "STRING", "ARRAY",
                                             "UINT64", "INT64",   "FLOAT64"};
    return kNames[static_cast<size_t>(type)];
}

std::optional<int64_t> GgufFile::signed_integer(std::string_view key) const {
    const GgufValue *value = find(*this, key);
    if (value == nullptr) {
        return {};
    }
    if (!is_integer(value->type)) {
        refuse(*this, key, *value, "an integer");
    }
    GgufCursor cursor = cursor_of(*this, *value);
    return read_integer(cursor, value->type);
}

std::optional<uint64_t> GgufFile::integer(std::string_view key) const {
    const std::optional<int64_t> number = signed_integer(key);
    if (number && *number < 0) {
        fail(Status::corrupt, "%s: metadata %.*s is %" PRId64 "; expected no less than 0",
             names[0].c_str(), static_cast<int>(key.size()), key.data(), *number);
    }
    return number ? std::optional(static_cast<uint64_t>(*number)) : std::nullopt;
}

std::optional<double> GgufFile::number(std::string_view key) const {
    const GgufValue *value = find(*this, key);
    if (value == nullptr) {
        return {};
    }
    if (value->type != Type::f32 && value->type != Type::f64) {
        refuse(*this, key, *value, "FLOAT32 or FLOAT64");
    }
    GgufCursor cursor = cursor_of(*this, *value);
    return value->type == Type::f32 ? cursor.number<float>() : cursor.number<double>();
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
    const GgufValue *value = find(*this, key);
    if (value == nullptr) {
        return {};
    }
    if (value->type != Type::boolean) {
        refuse(*this, key, *value, "BOOL");
    }
    return cursor_of(*this, *value).number<uint8_t>() != 0;
}

std::optional<std::string> GgufFile::text(std::string_view key) const {
    const GgufValue *value = find(*this, key);
    if (value == nullptr) {
        return {};
    }
    if (value->type != Type::string) {
        refuse(*this, key, *value, "STRING");
    }
    const std::string out(cursor_of(*this, *value).text());
    if (invalid_utf8(out) != out.size()) {
        fail(Status::corrupt, "%s: metadata %.*s is not UTF-8", names[0].c_str(),
             static_cast<int>(key.size()), key.data());
    }
    return out;
}

std::optional<std::vector<int64_t>> GgufFile::integers(std::string_view key) const {
    const GgufValue *value = find_array(*this, key, is_integer, "an array of integers");
    if (value == nullptr) {
        return {};
    }
    GgufCursor cursor = cursor_of(*this, *value);
    std::vector<int64_t> out(static_cast<size_t>(value->count));
    for (int64_t &number : out) {
        number = read_integer(cursor, value->element);
    }
    return out;
}

std::optional<std::vector<float>> GgufFile::numbers(std::string_view key) const {
    const auto fits = [](Type type) { return type == Type::f32; };
    const GgufValue *value = find_array(*this, key, fits, "an array of FLOAT32");
    if (value == nullptr) {
        return {};
    }
    GgufCursor cursor = cursor_of(*this, *value);
    std::vector<float> out(static_cast<size_t>(value->count));
    for (float &number : out) {
        number = cursor.number<float>();
    }
    return out;
}

std::optional<std::vector<bool>> GgufFile::booleans(std::string_view key) const {
    const auto fits = [](Type type) { return type == Type::boolean; };
    const GgufValue *value = find_array(*this, key, fits, "an array of BOOL");
    if (value == nullptr) {
        return {};
    }
    GgufCursor cursor = cursor_of(*this, *value);
    std::vector<bool> out(static_cast<size_t>(value->count));
    for (size_t i = 0; i < out.size(); ++i) {
        out[i] = cursor.number<uint8_t>() != 0;
    }
    return out;
}

bool GgufFile::is_array(std::string_view key) const {
    const GgufValue *value = find(*this, key);
    return value != nullptr && value->type == Type::array;
}

std::optional<std::vector<std::string_view>> GgufFile::texts(std::string_view key) const {
    const auto fits = [](Type type) { return type == Type::string; };
    const GgufValue *value = find_array(*this, key, fits, "an array of STRING");
    if (value == nullptr) {
        return {};
    }
    GgufCursor cursor = cursor_of(*this, *value);
    std::vector<std::string_view> out(static_cast<size_t>(value->count));
    for (std::string_view &text : out) {
        text = cursor.text();
    }
    return out;
}

} // namespace stasis
