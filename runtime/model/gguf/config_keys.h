// Typed, range-checked access to the metadata of one architecture, under "ARCHITECTURE." (private
// to config*.cpp), and what is read of the vocabulary.
#pragma once

#include <optional>
#include <string>

#include "runtime/model/config.h"
#include "runtime/model/gguf/gguf.h"

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

// config_tokens.cpp: the ids of `config`, whose vocabulary is known. Throws Error(corrupt): an id
// beyond it.
void read_token_ids(const GgufFile &file, Config &config);

} // namespace stasis
