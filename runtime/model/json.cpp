// Compares, searches and prints JSON values; see json.h.
#include "runtime/model/json.h"

#include <algorithm>

#include "format/state/json_writer.h"

namespace stasis {

namespace {

constexpr size_t kShownMax = 60;

constexpr size_t kWhole = SIZE_MAX - 1;

// Writes no more than the text of `most` bytes needs: a value may be a whole vocabulary.
void write(const Json &json, JsonWriter &writer, size_t most) {
    if (writer.text().size() > most) {
        return;
    }
    if (const Json::Array *array = json.array()) {
        writer.begin_array();
        for (const Json &each : *array) {
            write(each, writer, most);
        }
        writer.end_array();
    } else if (const Json::Object *object = json.object()) {
        writer.begin_object();
        for (const Json::Member &member : *object) {
            if (writer.text().size() > most) {
                return;
            }
            write(member.value, writer.key(member.key), most);
        }
        writer.end_object();
    } else if (json.is_null()) {
        writer.null();
    } else if (const bool *boolean = json.boolean()) {
        writer.value(*boolean);
    } else if (const std::string *text = json.text()) {
        writer.value(std::string_view(*text).substr(0, most + 1));
    } else if (const uint64_t *count = json.count()) {
        writer.value(*count);
    } else if (const int64_t *integer = std::get_if<int64_t>(&json.value)) {
        writer.value(*integer);
    } else {
        writer.value(std::get<double>(json.value));
    }
}

} // namespace

std::optional<double> Json::number() const {
    if (const uint64_t *unsigned_integer = count()) {
        return static_cast<double>(*unsigned_integer);
    }
    if (const int64_t *integer = std::get_if<int64_t>(&value)) {
        return static_cast<double>(*integer);
    }
    const double *real = std::get_if<double>(&value);
    return real != nullptr ? std::optional(*real) : std::nullopt;
}

const char *Json::type_name() const {
    static constexpr const char *kNames[] = {"null",   "boolean", "number", "number",
                                             "number", "string",  "array",  "object"};
    static_assert(std::size(kNames) == std::variant_size_v<decltype(value)>);
    return kNames[value.index()];
}

bool Json::operator==(const Json &other) const {
    const std::optional<double> own = number();
    if (value.index() != other.value.index() && own.has_value()) {
        return own == other.number();
    }
    return value == other.value;
}

const Json *Json::find(std::string_view key) const {
    const Object *members = object();
    if (members == nullptr) {
        return nullptr;
    }
    const auto at = std::lower_bound(
        members->begin(), members->end(), key,
        [](const Member &member, std::string_view wanted) { return member.key < wanted; });
    return at != members->end() && at->key == key ? &at->value : nullptr;
}

const Json *Json::find_value(std::string_view key) const {
    const Json *found = find(key);
    return found == nullptr || found->is_null() ? nullptr : found;
}

std::string written(const Json &json) {
    JsonWriter writer;
    write(json, writer, kWhole);
    return writer.take();
}

std::string shown(const Json &json) {
    JsonWriter writer;
    write(json, writer, kShownMax);
    std::string text = writer.take();
    // Cuts between characters, not inside one.
    if (text.size() > kShownMax) {
        size_t length = kShownMax;
        while (length > 0 && (static_cast<uint8_t>(text[length]) & 0xC0U) == 0x80U) {
            --length;
        }
        text = text.substr(0, length) + "...";
    }
    return text;
}

} // namespace stasis
