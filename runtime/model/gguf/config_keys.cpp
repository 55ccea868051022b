// Reads metadata with checks of type and range; see config_keys.h.
#include "runtime/model/gguf/config_keys.h"

#include "format/state/error.h"

namespace stasis {

void unsupported(const GgufFile &file, const std::string &what) {
    fail(Status::unsupported, "%s: %s", file.names[0].c_str(), what.c_str());
}

void Keys::refuse(const char *key, const std::string &expected, const std::string &found) const {
    fail(Status::corrupt, "%s: metadata %s: expected %s, found %s", file.names[0].c_str(),
         name(key).c_str(), expected.c_str(), found.c_str());
}

uint32_t Keys::count(const char *key, uint32_t most, std::optional<uint32_t> fallback,
                     uint32_t least) const {
    const std::optional<uint64_t> value = file.integer(name(key));
    if (!value && fallback) {
        return *fallback;
    }
    if (!value || *value < least || *value > most) {
        refuse(key, "an integer from " + std::to_string(least) + " to " + std::to_string(most),
               value ? std::to_string(*value) : "nothing");
    }
    return static_cast<uint32_t>(*value);
}

uint32_t Keys::count_of_layers(const char *key, uint32_t most, uint32_t layers, bool zeros) const {
    if (!file.is_array(name(key))) {
        return count(key, most);
    }
    std::vector<int64_t> values = *file.integers(name(key));
    if (values.size() != layers) {
        refuse(key, "one number, or one for each of " + std::to_string(layers) + " layers",
               std::to_string(values.size()));
    }
    if (zeros && std::erase(values, 0) == layers) {
        values = {0}; // refused
    }
    for (const int64_t value : values) {
        if (value < 1 || value > most) {
            refuse(key, "integers from 1 to " + std::to_string(most), std::to_string(value));
        }
        if (value != values[0]) {
            fail(Status::unsupported,
                 "%s: metadata %s: layers of different sizes are not supported",
                 file.names[0].c_str(), name(key).c_str());
        }
    }
    return static_cast<uint32_t>(values[0]);
}

std::vector<uint32_t> Keys::counts_of_layers(const char *key, uint32_t most,
                                             uint32_t layers) const {
    if (!file.is_array(name(key))) {
        return std::vector<uint32_t>(layers, count(key, most));
    }
    const std::vector<int64_t> values = *file.integers(name(key));
    if (values.size() != layers) {
        refuse(key, "one number, or one for each of " + std::to_string(layers) + " layers",
               std::to_string(values.size()));
    }
    std::vector<uint32_t> counts;
    for (const int64_t value : values) {
        if (value < 1 || value > most) {
            refuse(key, "integers from 1 to " + std::to_string(most), std::to_string(value));
        }
        counts.push_back(static_cast<uint32_t>(value));
    }
    return counts;
}

double Keys::positive(const char *key, std::optional<double> fallback) const {
    const std::optional<double> value = file.number(name(key));
    if (!value && fallback) {
        return *fallback;
    }
    if (!value || !(*value >= 0x1p-126 && *value <= 0x1p127)) { // as for config.json
        refuse(key, "a number above 0 (from 2^-126 to 2^127)",
               value ? std::to_string(*value) : "nothing");
    }
    return *value;
}

} // namespace stasis
