// See config_fields.h.
#include "runtime/checkpoint/config_fields.h"

#include "format/error.h"

namespace stasis {

namespace {

// A value as it stands in the file, for messages; long ones are cut.
std::string shown(const nlohmann::json &value) {
    std::string text = value.dump();
    constexpr size_t kShownMax = 60;
    if (text.size() > kShownMax) {
        text = text.substr(0, kShownMax) + "...";
    }
    return text;
}

} // namespace

bool Fields::has(const char *key) const {
    const auto found = object.find(key);
    return found != object.end() && !found->is_null();
}

void Fields::refuse(const char *key, const char *expected) const {
    const auto found = object.find(key);
    fail(Status::corrupt, "%s%s: expected %s, found %s", name.c_str(), key, expected,
         found == object.end() ? "nothing" : shown(*found).c_str());
}

uint32_t Fields::count(const char *key, uint32_t maximum, std::optional<uint32_t> fallback,
                       uint32_t minimum) const {
    if (!has(key) && fallback.has_value()) {
        return *fallback;
    }
    const std::string expected =
        "an integer from " + std::to_string(minimum) + " to " + std::to_string(maximum);
    if (!has(key) || !object.at(key).is_number_unsigned()) {
        refuse(key, expected.c_str());
    }
    const uint64_t value = object.at(key).get<uint64_t>();
    if (value < minimum || value > maximum) {
        refuse(key, expected.c_str());
    }
    return static_cast<uint32_t>(value);
}

double Fields::positive(const char *key, std::optional<double> fallback) const {
    if (!has(key) && fallback.has_value()) {
        return *fallback;
    }
    if (!has(key) || !object.at(key).is_number()) {
        refuse(key, "a number above 0");
    }
    // All of them end up as f32 or as divisors: what f32 cannot hold is refused here.
    const double value = object.at(key).get<double>();
    if (!(value >= 0x1p-126 && value <= 0x1p127)) {
        refuse(key, "a number above 0 (from 2^-126 to 2^127)");
    }
    return value;
}

bool Fields::flag(const char *key, bool fallback) const {
    if (!has(key)) {
        return fallback;
    }
    if (!object.at(key).is_boolean()) {
        refuse(key, "true or false");
    }
    return object.at(key).get<bool>();
}

std::string Fields::text(const char *key, const std::string &fallback) const {
    if (!has(key)) {
        return fallback;
    }
    if (!object.at(key).is_string()) {
        refuse(key, "text");
    }
    return object.at(key).get<std::string>();
}

Fields Fields::child(const char *key) const {
    if (!has(key) || !object.at(key).is_object()) {
        refuse(key, "an object");
    }
    return {object.at(key), name + key + "."};
}

} // namespace stasis
