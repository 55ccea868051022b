// Typed, range-checked access to one object of a config.json, and the parsers of each architecture
// (private to config*.cpp). Knows no architecture's field names.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "runtime/checkpoint/config.h"

namespace stasis {

// A field that is null counts as absent, as in the published reader. Each getter throws
// Error(corrupt) naming the field if it has another type, is out of range, or is absent and has no
// fallback.
struct Fields {
    const nlohmann::json &object;
    std::string name; // in front of a field's name in messages: "config.json: ", ...

    bool has(const char *key) const;
    uint32_t count(const char *key, uint32_t maximum, std::optional<uint32_t> fallback = {}) const;
    double positive(const char *key, std::optional<double> fallback = {}) const; // finite, above 0
    bool flag(const char *key, bool fallback) const;
    std::string text(const char *key, const std::string &fallback) const;
    Fields child(const char *key) const; // an object

    [[noreturn]] void refuse(const char *key, const char *expected) const;
};

inline constexpr uint32_t kLayersMax = 1024;
inline constexpr uint32_t kWidthMax = 1U << 20;
// Published models have up to 512; kernels keep a few heads in their scratch memory.
inline constexpr uint32_t kHeadDimMax = 1024;
inline constexpr uint32_t kVocabularyMax = 1U << 24;
inline constexpr uint32_t kContextMax = 1U << 31;

// config_llama.cpp, config_gemma3.cpp: all but the token ids, unchecked across fields.
Config parse_llama(const Fields &fields);
Config parse_gemma3(const Fields &fields);

// config_rope.cpp: the rotary embedding of the layers of `layer_type` ("full_attention" or
// "sliding_attention"); the base comes from `base_key` where the rope's own object has none.
Rope parse_rope(const Fields &fields, const char *layer_type, const char *base_key,
                double base_fallback);
// Index of the rope in config.ropes, added if it is new.
uint32_t rope_index(Config &config, const Rope &rope);

Activation parse_activation(const Fields &fields, const char *key, const char *fallback);
void refuse_unsupported(const Fields &fields);

} // namespace stasis
