// Typed, range-checked access to the metadata of one architecture, under "ARCHITECTURE." (private
// to config*.cpp), and what is read of the vocabulary.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/model/config.h"
#include "runtime/model/gguf/gguf.h"
#include "runtime/model/gguf/writer.h"

namespace stasis {

// Each getter throws Error(corrupt) naming the key if its value has another type, is out of range,
// or is absent and has no fallback.
struct Keys {
    const GgufFile &file;
    std::string architecture;

    std::string name(const char *key) const { return architecture + "." + key; }
    bool has(const char *key) const { return file.metadata.count(name(key)) != 0; }

    uint32_t count(const char *key, uint32_t most, std::optional<uint32_t> fallback = {},
                   uint32_t least = 1) const;
    // Of which some files give one for each layer; throws Error(unsupported) unless all are equal.
    uint32_t count_of_layers(const char *key, uint32_t most, uint32_t layers) const;
    // Above 0, finite and normal as f32, which is what they are used as, or made from.
    double positive(const char *key, std::optional<double> fallback = {}) const;

    [[noreturn]] void refuse(const char *key, const std::string &expected,
                             const std::string &found) const;
};

// Throws Error(unsupported) naming the file.
[[noreturn]] void unsupported(const GgufFile &file, const std::string &what);

// config_layers.cpp: the RoPE of all layers, or of the global ones.
Rope parse_rope(const Keys &keys, double base_fallback);
// Which layers have a window: said one by one, or all but every pattern-th; 0: all of them.
std::vector<bool> parse_local_layers(const Keys &keys, uint32_t layers, uint32_t pattern_fallback);
// Reads layers that share one RoPE; those with a window, if there may be any, all have the same.
void set_layers(const Keys &keys, bool windows, Config &config);

// Writes metadata under "ARCHITECTURE.".
struct WrittenKeys {
    const std::string prefix;
    GgufMetadata &metadata;

    void integer(const char *key, uint32_t value) const { metadata.integer(prefix + key, value); }
    void number(const char *key, double value) const {
        metadata.number(prefix + key, static_cast<float>(value));
    }
    void text(const char *key, const char *value) const { metadata.text(prefix + key, value); }
};

// config_tokens.cpp: the ids of `config`, whose vocabulary is known. Throws Error(corrupt): an id
// beyond it.
void read_token_ids(const GgufFile &file, Config &config);

} // namespace stasis
