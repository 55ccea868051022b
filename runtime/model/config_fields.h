// Typed, range-checked access to one object of a config.json, and functions that families share in
// reading it. Also used by sampling/recommended.cpp. Knows no family.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/model/config.h"
#include "runtime/model/json.h"

namespace stasis {

// A null field counts as absent, as in the published reader. Each getter throws Error(corrupt)
// naming the field if it has another type, is out of range, or is absent and has no fallback.
struct Fields {
    const Json &object;
    std::string name; // prefix of a field's name in messages: "config.json: ", ...

    bool has(const char *key) const;
    uint32_t count(const char *key, uint32_t maximum, std::optional<uint32_t> fallback = {},
                   uint32_t minimum = 1) const;
    double positive(const char *key, std::optional<double> fallback = {}) const; // finite, above 0
    bool flag(const char *key, bool fallback) const;
    std::string text(const char *key, const std::string &fallback) const;
    Fields child(const char *key) const; // an object

    [[noreturn]] void refuse(const char *key, const char *expected) const;
};

inline constexpr uint32_t kLayersMax = 1024;
inline constexpr uint32_t kWidthMax = 1U << 20;
inline constexpr uint32_t kExpertsMax = 4096;
inline constexpr uint32_t kVocabularyMax = 1U << 24;
inline constexpr uint32_t kContextMax = 1U << 31;

// The names in a file of the sizes that must fit each other.
struct SizeNames {
    std::string file;
    const char *heads, *kv_heads, *head_dim;
};

// Checks sizes as all architectures require, whatever file described them. Throws Error: corrupt,
// unsupported.
void check_sizes(const Config &config, const SizeNames &names);

// config_layers.cpp: returns whether each layer is local, from `layer_types`, which must exist.
std::vector<bool> parse_layer_types(const Fields &fields, uint32_t layers);
// Sets the layers of a model whose layers share one RoPE; local ones have the given window.
// `layer_types`, if it exists, must agree.
void set_layers(const Fields &fields, const Rope &shared, uint32_t window,
                const std::vector<bool> &local, Config &config);
// The same with the RoPE that parse_only_rope returns.
void set_layers(const Fields &fields, uint32_t window, const std::vector<bool> &local,
                Config &config);

// Sets the layers of a hybrid, of which those in `recurrent`, called `what`, are not attention.
// There must be both. Their RoPE is the model's only one.
void set_hybrid_layers(const std::string &file, const std::vector<bool> &recurrent,
                       const char *what, const Rope &rope, Config &config);

// Defaults of absent fields of a mixture of experts, and the names of two of them.
struct ExpertDefaults {
    uint32_t count, chosen, intermediate;
    const char *count_key = "num_experts", *intermediate_key = "moe_intermediate_size";
    const char *chosen_key = "num_experts_per_tok";
};
// config_experts.cpp: reads these.
Experts parse_experts(const Fields &fields, const ExpertDefaults &defaults);
// Marks the layers that have experts: every decoder_sparse_step-th, except mlp_only_layers.
void set_expert_layers(const Fields &fields, Config &config);

// Whether RoPE turns whole heads in an architecture, or a part that parse_rotary_dim reads.
enum class Rotary { whole, part };

// config_rope.cpp: returns the RoPE of the layers of `layer_type` ("full_attention" or
// "sliding_attention"). Its base comes from `base_key` if the RoPE's own object has none.
Rope parse_rope(const Fields &fields, const char *layer_type, const char *base_key,
                double base_fallback, Rotary rotary = Rotary::whole);
// Returns Config::rotary_dim, from the part of a head that partial_rotary_factor gives.
uint32_t parse_rotary_dim(const Fields &fields, uint32_t head_dim, double fallback);
// Returns the RoPE that all layers share.
Rope parse_only_rope(const Fields &fields, double base_fallback = 10000.0);
// Returns the RoPE of the layers without a window in an architecture where a part of each of their
// heads, of `head_dim` numbers, may turn, in pairs of the whole head.
Rope parse_proportional_rope(const Fields &fields, const Config &config, uint32_t head_dim);
// Reads Config::query_growth, which the object of RoPE has in published files.
void parse_query_growth(const Fields &fields, Config &config);
// Returns the RoPE that all layers share in an architecture that may have long RoPE, and of which a
// part of each head may turn. Sizes and Config::rotary_dim must be set.
Rope parse_long_rope(const Fields &fields, const Config &config);
// Returns the index of the RoPE in config.ropes, and adds it if it is new.
uint32_t rope_index(Config &config, const Rope &rope);

Activation parse_activation(const Fields &fields, const char *key, const char *fallback);
// Throws Error(unsupported) for what no family has, and for quantised checkpoints, unless
// `quantised` names their method; and for attention in both directions, unless the family has it.
void refuse_unsupported(const Fields &fields, const char *quantised = nullptr,
                        bool bidirectional = false);

} // namespace stasis
