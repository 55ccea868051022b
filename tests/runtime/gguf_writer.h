// Writes GGUF files from parts: good ones and, from wrong parts, false ones. For tests and fuzzers;
// the product uses none of it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/gguf/gguf.h"

namespace stasis {

template <typename Number> std::string gguf_number(Number value) {
    std::string out(sizeof value, '\0');
    std::memcpy(out.data(), &value, sizeof value);
    return out;
}

inline std::string gguf_text(std::string_view text) {
    return gguf_number<uint64_t>(text.size()) + std::string(text);
}

inline std::string gguf_array(GgufValueType element, uint64_t count, const std::string &values) {
    return gguf_number(static_cast<uint32_t>(element)) + gguf_number(count) + values;
}

struct GgufWriter {
    uint32_t version = 3;
    uint64_t alignment = 32;
    uint64_t pair_count = 0, tensor_count = 0; // as the header will say
    std::string pairs, infos, data;

    GgufWriter &pair(std::string_view key, GgufValueType type, const std::string &value) {
        pairs += gguf_text(key) + gguf_number(static_cast<uint32_t>(type)) + value;
        ++pair_count;
        return *this;
    }
    GgufWriter &text(std::string_view key, std::string_view value) {
        return pair(key, GgufValueType::string, gguf_text(value));
    }
    GgufWriter &integer(std::string_view key, uint32_t value) {
        return pair(key, GgufValueType::u32, gguf_number(value));
    }
    GgufWriter &number(std::string_view key, float value) {
        return pair(key, GgufValueType::f32, gguf_number(value));
    }
    GgufWriter &boolean(std::string_view key, bool value) {
        return pair(key, GgufValueType::boolean, std::string(1, value ? '\1' : '\0'));
    }
    GgufWriter &texts(std::string_view key, const std::vector<std::string> &values) {
        std::string bytes;
        for (const std::string &value : values) {
            bytes += gguf_text(value);
        }
        return pair(key, GgufValueType::array,
                    gguf_array(GgufValueType::string, values.size(), bytes));
    }
    template <typename Number>
    GgufWriter &array(std::string_view key, GgufValueType element,
                      const std::vector<Number> &values) {
        std::string bytes;
        for (const Number value : values) {
            bytes += gguf_number(value);
        }
        return pair(key, GgufValueType::array, gguf_array(element, values.size(), bytes));
    }
    // An entry of the table alone.
    GgufWriter &info(std::string_view name, GgufType type, const std::vector<uint64_t> &shape,
                     uint64_t offset) {
        infos += gguf_text(name) + gguf_number(static_cast<uint32_t>(shape.size()));
        for (const uint64_t dimension : shape) {
            infos += gguf_number(dimension);
        }
        infos += gguf_number(static_cast<uint32_t>(type)) + gguf_number(offset);
        ++tensor_count;
        return *this;
    }
    GgufWriter &tensor(std::string_view name, GgufType type, const std::vector<uint64_t> &shape,
                       const std::string &bytes) {
        data.resize((data.size() + alignment - 1) / alignment * alignment);
        info(name, type, shape, data.size());
        data += bytes;
        return *this;
    }
    std::string bytes() const {
        std::string out = "GGUF" + gguf_number(version) + gguf_number(tensor_count) +
                          gguf_number(pair_count) + pairs + infos;
        if (!data.empty()) {
            out.resize((out.size() + alignment - 1) / alignment * alignment);
        }
        return out + data;
    }
};

} // namespace stasis
