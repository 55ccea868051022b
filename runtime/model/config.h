// The description of an architecture that forward.cpp reads: sizes, conventions, RoPE, windows.
// Made from a Hugging Face config.json (config.cpp); knows neither files of weights nor sessions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "runtime/kernels/table.h"
#include "runtime/model/model_folder.h"

namespace stasis {

// Published models have up to 512; kernels keep a few heads in their workspace.
inline constexpr uint32_t kHeadDimMax = 1024;

using kernels::Activation;

// `still` turns nothing: it stands for a layer without RoPE. `longrope` has two sets of factors.
enum class RopeScaling { none, linear, llama3, yarn, longrope, still };

struct Rope {
    double base = 10000.0;
    RopeScaling scaling = RopeScaling::none;
    double factor = 1.0;               // linear, llama3 and yarn
    double low_frequency_factor = 1.0; // llama3
    double high_frequency_factor = 4.0;
    uint32_t original_context = 0; // llama3, yarn, longrope: positions of the original training
    // [rotary / 2] divisors of the frequencies, by which GGUF files express llama3; empty: none.
    std::vector<float> factors = {};
    // longrope: the divisors in sessions whose capacity exceeds original_context.
    std::vector<float> long_factors = {};
    // yarn: turns in the original context of the pairs between which frequencies are blended.
    double turns_fast = 32.0, turns_slow = 1.0;
    bool whole_bounds = true; // yarn: the blend begins and ends at whole pairs
    double amplitude = 1.0;   // cosines and sines are multiplied by it
    uint32_t rotary = 0;      // leading numbers of a head that it turns; 0: Config::rotary()
    uint32_t still_from = 0;  // pairs from this one on do not turn; 0: all do
    bool operator==(const Rope &) const = default;
};

inline constexpr uint32_t kOwnKeys = UINT32_MAX;

struct LayerConfig {
    uint32_t window = 0;         // positions a query sees, its own included; 0: all
    uint32_t rope = 0;           // index into Config::ropes
    bool recurrent = false;      // one of the layers of C11 in place of attention
    bool experts = false;        // a mixture of experts (C12) in place of one MLP, or beside it
    uint32_t keys_of = kOwnKeys; // the layer whose keys and values it uses
    uint32_t intermediate = 0;   // of its MLP; 0: Config::intermediate

    bool own_keys() const { return keys_of == kOwnKeys; }
};

// The mixtures of experts, in layers that have them (C12).
struct Experts {
    uint32_t count = 0;        // of a layer; 0: no layer has any
    uint32_t chosen = 0;       // for each row
    uint32_t intermediate = 0; // of one expert
    uint32_t shared = 0;       // intermediate size of the shared expert; 0: none
    bool renormalised = false; // the shares of the chosen are divided by their sum
    bool router_bias = false;
    // The layer has one MLP as well, whose result is added; the router reads the residual stream,
    // normed for itself and scaled, and each expert's share is multiplied by a number of its own.
    bool beside_mlp = false;
    // A Hugging Face file has the matrices of experts by columns, and the numbers of gate and up in
    // turn.
    bool by_column = false;
};

// The recurrent layers (C11). A layer's state is its last inputs of the convolution, then S of each
// value head; f32 throughout. Short convolutions have no keys and no S, and one value head, of the
// width of the stream. Mamba-2 has values x, keys B and queries C, the latter of groups of heads.
struct Recurrent {
    uint32_t key_heads = 0;              // 0: short convolutions
    uint32_t value_heads = 0;            // 0: no layer is recurrent
    uint32_t key_dim = 0, value_dim = 0; // of one head
    uint32_t taps = 0;                   // of the convolution
    // Value head h has the key head h % key_heads, as in GGUF files; else those that share a key
    // head follow each other.
    bool tiled = false;
    bool stored_rates = false; // files have the rates -exp(A_log), not A_log
    bool scan = false;         // Mamba-2
    bool convolution_bias = false;
    float step_least = 0.0F, step_most = std::numeric_limits<float>::infinity(); // of Mamba-2

    bool short_convolutions() const { return value_heads != 0 && key_heads == 0; }
    size_t key_size() const { return size_t{key_heads} * key_dim; }
    size_t value_size() const { return size_t{value_heads} * value_dim; }
    // Query, key, value; of Mamba-2 value, key, query.
    size_t channels() const { return 2 * key_size() + value_size(); }
    // Outputs of a layer's first product where it has one: B, C and x; z, x, B, C and dt. Else of
    // the product z.
    size_t product_size() const {
        return short_convolutions() ? 3 * value_size()
               : scan               ? value_size() + channels() + value_heads
                                    : value_size();
    }
    // [taps - 1][channels], the oldest first
    size_t inputs_size() const { return (taps - 1) * channels(); }
    // [value_heads][key_dim][value_dim]
    size_t rule_size() const { return value_heads * size_t{key_dim} * value_dim; }
    size_t state_size() const { return value_heads == 0 ? 0 : inputs_size() + rule_size(); }
};

struct Config {
    std::string architecture; // "llama", "gemma3", "mistral", ...
    uint32_t layers = 0;
    uint32_t hidden = 0;
    uint32_t heads = 0;
    uint32_t kv_heads = 0;
    uint32_t head_dim = 0;
    uint32_t global_kv_heads = 0; // of layers without a window; 0: kv_heads
    uint32_t global_head_dim = 0; // of layers without a window; 0: head_dim
    uint32_t intermediate = 0;
    uint32_t vocabulary = 0;
    uint32_t context = 0; // max_position_embeddings
    float norm_eps = 1e-6F;
    bool norm_plus_one = false;         // norms multiply by 1 + w
    bool query_key_norm = false;        // norm of each query and key head before RoPE
    bool joint_norms = false;           // these norms are over all heads together
    bool value_norm = false;            // norm of each value head, without weights
    bool global_keys_as_values = false; // layers without a window have no values but their keys
    // A query sees the positions after its own as well, within the window: the model makes
    // embeddings, and has no sessions.
    bool bidirectional = false;
    bool pre_norms = true;              // norms before attention and before the MLP
    bool post_norms = false;            // norms after attention and after the MLP
    bool attention_bias = false;        // q, k, v
    bool output_bias = false;           // o; only with attention_bias
    bool mlp_bias = false;              // gate, up, down, of experts too
    bool attention_sinks = false; // each head has a logit beside its scores, without a value (C5)
    bool tied_head = false;
    bool fused_tensors = false;  // stored: q, k, v as one matrix, gate and up as another
    bool operator_names = false; // stored: under the names of LFM2 (weights_names.cpp)
    bool shared_names = false;   // stored: MLPs under the names of Granite 4 (weights_names.cpp)
    bool output_gate = false; // attention times sigmoid of a gate, whose rows follow each query's
    uint32_t rotary_dim = 0;  // leading numbers of a head that RoPE turns; 0: all
    // Rows of q and k are stored with RoPE pairs interleaved, as in GGUF files of Llama: (0, n/2),
    // (1, n/2 + 1), ...
    bool interleaved_rope = false;
    float embedding_scale = 1.0F;
    float attention_scale = 0.0F; // scores are multiplied by it
    float residual_scale = 1.0F;  // what is added to the stream is multiplied by it
    float logits_divisor = 1.0F;
    // Queries are multiplied by 1 + growth * ln(1 + floor(position / context)); 0: by nothing.
    float query_growth = 0.0F;
    uint32_t query_growth_context = 0;
    uint32_t layer_inputs = 0;      // numbers that each layer gets of each token (C6); 0: none
    bool layer_scalars = false;     // the stream is multiplied by a number after each layer
    float attention_softcap = 0.0F; // 0: none
    float final_softcap = 0.0F;     // 0: none
    Activation activation = Activation::silu;
    // Not 0: gates are gpt-oss's, of values up to it (C3, limited_gate), in place of the
    // activation.
    float gate_limit = 0.0F;
    Experts experts;
    Recurrent recurrent;
    std::vector<Rope> ropes;
    std::vector<LayerConfig> layer; // [layers]
    // Layers after these that predict further tokens (MTP), as described; the checkpoint need not
    // have them. No result depends on them.
    uint32_t mtp_layers = 0;
    // The ids of generation_config.json if it has any, else of config.json.
    std::vector<uint32_t> bos; // at most one
    std::vector<uint32_t> end_tokens;

    // Return how many leading numbers of a head RoPE turns, and one RoPE of the model.
    uint32_t rotary() const { return rotary_dim == 0 ? head_dim : rotary_dim; }
    uint32_t rotary_of(const Rope &rope) const { return rope.rotary == 0 ? rotary() : rope.rotary; }
    uint32_t most_rotary() const;
    // Return the sizes of a layer; with {}, of those without a window.
    uint32_t head_dim_of(const LayerConfig &kind) const {
        return kind.window == 0 && global_head_dim != 0 ? global_head_dim : head_dim;
    }
    uint32_t kv_heads_of(const LayerConfig &kind) const {
        return kind.window == 0 && global_kv_heads != 0 ? global_kv_heads : kv_heads;
    }
    uint32_t intermediate_of(const LayerConfig &kind) const {
        return kind.intermediate == 0 ? intermediate : kind.intermediate;
    }
    bool keys_as_values(const LayerConfig &kind) const {
        return global_keys_as_values && kind.window == 0;
    }
    // Return the largest of all layers.
    uint32_t most_head_dim() const { return std::max(head_dim, global_head_dim); }
    uint32_t most_intermediate() const;
    size_t most_key_size() const; // KV heads times head size
    // Returns the numbers of a token for all layers.
    size_t layer_inputs_size() const { return size_t{layer_inputs} * layers; }
    // Returns the capacity above which a session uses the long factors of RoPE; 0: there are none.
    uint32_t long_rope_from() const;
};

// Reads DIRECTORY/config.json and generation_config.json (optional). Throws Error: not_found, io,
// corrupt (not JSON, wrong type, impossible size) or unsupported (naming the architecture,
// activation, RoPE type, quantisation, ...).
Config read_config(const ModelFolder &folder);

inline constexpr char kGenerationConfig[] = "generation_config.json";
// Returns DIRECTORY/generation_config.json; "" if it does not exist. Throws Error(io).
std::string read_generation_config(const ModelFolder &folder);

// Does the same from text, for tests and fuzzing; `generation` may be empty.
Config parse_config(const std::string &config, const std::string &generation);

// Returns the description of the layer in an MTP head, which is that of the last layer with
// attention. There must be one.
LayerConfig mtp_layer(const Config &config);

// The further pair of sessions with the short factors of long RoPE.
inline std::pair<std::string, std::string> short_rope() {
    return {"rope_factors", "short"};
}

// Returns canonical name and value pairs of everything that determines results
// (ModelIdentity::config).
std::vector<std::pair<std::string, std::string>> describe(const Config &config);

} // namespace stasis
