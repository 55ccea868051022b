// Reads fields with checks of type and range; see config_fields.h.
#include "runtime/model/config_fields.h"

#include "format/state/error.h"

namespace stasis {

bool Fields::has(const char *key) const {
    return object.find_value(key) != nullptr;
}

void Fields::refuse(const char *key, const char *expected) const {
    const Json *found = object.find(key);
    fail(Status::corrupt, "%s%s: expected %s, found %s", name.c_str(), key, expected,
         found == nullptr ? "nothing" : shown(*found).c_str());
}

uint32_t Fields::count(const char *key, uint32_t maximum, std::optional<uint32_t> fallback,
                       uint32_t minimum) const {
    const Json *found = object.find_value(key);
    if (found == nullptr && fallback.has_value()) {
        return *fallback;
    }
    const uint64_t *value = found != nullptr ? found->count() : nullptr;
    if (value == nullptr || *value < minimum || *value > maximum) {
        const std::string expected =
            "an integer from " + std::to_string(minimum) + " to " + std::to_string(maximum);
        refuse(key, expected.c_str());
    }
    return static_cast<uint32_t>(*value);
}

double Fields::positive(const char *key, std::optional<double> fallback) const {
    const Json *found = object.find_value(key);
    if (found == nullptr && fallback.has_value()) {
        return *fallback;
    }
    const std::optional<double> value = found != nullptr ? found->number() : std::nullopt;
    if (!value.has_value()) {
        refuse(key, "a number above 0");
    }
    // Each is used as f32 or as a divisor, so a number outside the range of f32 is refused.
    if (!(*value >= 0x1p-126 && *value <= 0x1p127)) {
        refuse(key, "a number above 0 (from 2^-126 to 2^127)");
    }
    return *value;
}

bool Fields::flag(const char *key, bool fallback) const {
    const Json *found = object.find_value(key);
    if (found == nullptr) {
        return fallback;
    }
    if (found->boolean() == nullptr) {
        refuse(key, "true or false");
    }
    return *found->boolean();
}

std::string Fields::text(const char *key, const std::string &fallback) const {
    const Json *found = object.find_value(key);
    if (found == nullptr) {
        return fallback;
    }
    if (found->text() == nullptr) {
        refuse(key, "text");
    }
    return *found->text();
}

Fields Fields::child(const char *key) const {
    const Json *found = object.find_value(key);
    if (found == nullptr || found->object() == nullptr) {
        refuse(key, "an object");
    }
    return {*found, name + key + "."};
}

} // namespace stasis
