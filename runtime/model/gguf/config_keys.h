// Typed, range-checked access to the metadata of one architecture, under "ARCHITECTURE.", for
// config*.cpp and the families (family/family.h), and the ids of the vocabulary.
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
    // Returns a number that some files give for each layer; throws Error(unsupported) unless all
    // are equal, or with `zeros` all but those that are 0.
    uint32_t count_of_layers(const char *key, uint32_t most, uint32_t layers,
                             bool zeros = false) const;
    // Returns a number of each layer.
    std::vector<uint32_t> counts_of_layers(const char *key, uint32_t most, uint32_t layers) const;
    // Returns a number above 0 that is finite and normal as f32, because it is used as f32 or in
    // one.
    double positive(const char *key, std::optional<double> fallback = {}) const;

    [[noreturn]] void refuse(const char *key, const std::string &expected,
                             const std::string &found) const;
};

// The number of blocks after the layers that predict further tokens: those of an MTP head.
inline constexpr char kGgufPredicting[] = "nextn_predict_layers";
// Tensors of factors of RoPE: of all sessions, or of those on either side of long RoPE.
inline constexpr char kGgufRopeFactors[] = "rope_freqs.weight";
inline constexpr char kGgufShortFactors[] = "rope_factors_short.weight";
inline constexpr char kGgufLongFactors[] = "rope_factors_long.weight";
inline constexpr char kGgufAmplitude[] = "rope.scaling.attn_factor"; // a factor of Rope::amplitude
inline constexpr char kGgufQueryGrowth[] = "attention.temperature_scale"; // Config::query_growth

// Throws Error(unsupported) naming the file.
[[noreturn]] void unsupported(const GgufFile &file, const std::string &what);

// config_layers.cpp: returns the RoPE of all layers, or of the global ones.
Rope parse_rope(const Keys &keys, double base_fallback);
// Returns RoPE's amplitude: the usual one where the file says none, or says that one rounded to
// f32.
double parse_amplitude(const Keys &keys, const char *key, double usual);
// Returns the numbers of a tensor with one factor for each of the pairs that turn; empty: the file
// does not have it.
std::vector<float> parse_rope_factors(const GgufFile &file, const char *name, uint32_t half);
// Reads the two sets of factors of long RoPE, if the file has them, into the RoPE that all layers
// share.
void read_long_rope(const Keys &keys, Config &config);
// Returns which layers have a window: listed one by one, or all but every pattern-th; 0: all.
std::vector<bool> parse_local_layers(const Keys &keys, uint32_t layers, uint32_t pattern_fallback);
// Sets layers that share one RoPE; if windows are allowed, all windows are equal.
void set_layers(const Keys &keys, bool windows, Config &config);

// config_experts.cpp: reads the sizes of mixtures of experts.
Experts parse_experts(const Keys &keys, const Config &config);

// Writes metadata under "ARCHITECTURE.".
struct WrittenKeys {
    const std::string prefix;
    GgufMetadata &metadata;

    void integer(const char *key, uint32_t value) const { metadata.integer(prefix + key, value); }
    void number(const char *key, double value) const {
        metadata.number(prefix + key, static_cast<float>(value));
    }
    void integers(const char *key, const std::vector<int32_t> &values) const {
        metadata.integers(prefix + key, values);
    }
    void text(const char *key, const char *value) const { metadata.text(prefix + key, value); }
};

// config_experts.cpp: writes the sizes that parse_experts reads.
void describe_experts(const Config &config, const WrittenKeys &keys);

// config_tokens.cpp: reads the token ids of `config`, whose vocabulary is set. Throws
// Error(corrupt) for an id outside the vocabulary.
void read_token_ids(const GgufFile &file, Config &config);

} // namespace stasis
