// A GGUF file's metadata as the description that forward.cpp reads. Keys: ggml's docs/gguf.md. What
// that leaves to the reader (pairs of llama's rope, windows of Gemma 3, what an absent key means)
// is as in llama.cpp and its converter, which published files are made with and for.
#include "runtime/model/gguf/config.h"

#include <cmath>

#include "format/state/error.h"
#include "runtime/kernels/environment.h"
#include "runtime/model/config_fields.h"
#include "runtime/model/gguf/config_keys.h"
#include "runtime/model/model_file.h"

namespace stasis {

namespace {

constexpr char kEmbeddings[] = "token_embd.weight", kRopeFactors[] = "rope_freqs.weight";

[[noreturn]] void unsupported(const GgufFile &file, const std::string &what) {
    fail(Status::unsupported, "%s: %s", file.names[0].c_str(), what.c_str());
}

bool has_tensor(const GgufFile &file, const char *name) {
    return file.tensors.count(name) != 0;
}

// Keys that change results unless they say what would be so without them.
void refuse_unsupported(const Keys &keys) {
    if (keys.count("expert_count", kWidthMax, 0, 0) > 1) {
        unsupported(keys.file, "mixtures of experts are not supported");
    }
    struct Neutral {
        const char *key;
        double value;
    };
    for (const Neutral &neutral :
         {Neutral{"logit_scale", 1}, Neutral{"embedding_scale", 1}, Neutral{"residual_scale", 1},
          Neutral{"attention.clamp_kqv", 0}, Neutral{"attention.max_alibi_bias", 0},
          Neutral{"attention.temperature_scale", 0}, Neutral{"rope.scaling.attn_factor", 1}}) {
        const std::string name = keys.name(neutral.key);
        if (keys.file.number(name).value_or(neutral.value) != neutral.value) {
            unsupported(keys.file, "metadata " + name + " is not supported");
        }
    }
    if (!keys.file.boolean(keys.name("attention.causal")).value_or(true) ||
        keys.file.boolean(keys.name("use_parallel_residual")).value_or(false)) {
        unsupported(keys.file, "attention that is not causal, and parallel residuals, are not "
                               "supported");
    }
    if (keys.count("pooling_type", UINT32_MAX, 0, 0) != 0) {
        unsupported(keys.file, "metadata " + keys.name("pooling_type") +
                                   ": models of embeddings are not supported");
    }
}

// Blocks of integers are laid out as version 2 has it, which every file is taken for that says
// nothing.
void refuse_old_blocks(const GgufFile &file) {
    constexpr char kVersion[] = "general.quantization_version";
    constexpr uint64_t kSupported = 2;
    const uint64_t version = file.integer(kVersion).value_or(kSupported);
    for (const auto &[name, tensor] : file.tensors) {
        if (version != kSupported && gguf_block(tensor.type).elements > 1) {
            unsupported(file, "metadata " + std::string(kVersion) + " is " +
                                  std::to_string(version) + "; tensor " + name +
                                  " is read as of version 2");
        }
    }
}

void parse_head_sizes(const Keys &keys, Config &config) {
    if (!keys.has("attention.key_length") && config.hidden % config.heads != 0) {
        keys.refuse("attention.head_count",
                    "a divisor of embedding_length (" + std::to_string(config.hidden) +
                        "), as key_length is not given",
                    std::to_string(config.heads));
    }
    config.head_dim = keys.count("attention.key_length", kWidthMax, config.hidden / config.heads);
    if (keys.count("attention.value_length", kWidthMax, config.head_dim) != config.head_dim) {
        unsupported(keys.file, "metadata " + keys.name("attention.value_length") +
                                   ": values of another length than keys are not supported");
    }
    if (keys.count("rope.dimension_count", kWidthMax, config.head_dim) != config.head_dim) {
        unsupported(keys.file, "metadata " + keys.name("rope.dimension_count") +
                                   ": rotary embedding of a part of a head is not supported");
    }
}

// Rows of the embeddings, which no key need say.
uint32_t parse_vocabulary(const Keys &keys) {
    if (!has_tensor(keys.file, kEmbeddings)) {
        fail(Status::corrupt, "%s: tensor %s is missing", keys.file.names[0].c_str(), kEmbeddings);
    }
    const GgufTensor &embeddings = keys.file.tensor(kEmbeddings);
    if (embeddings.shape.size() != 2 || embeddings.shape[1] > kVocabularyMax) {
        fail(Status::corrupt, "tensor %s in %s: expected a matrix of at most %u rows", kEmbeddings,
             keys.file.names[embeddings.file].c_str(), kVocabularyMax);
    }
    const auto rows = static_cast<uint32_t>(embeddings.shape[1]);
    if (keys.count("vocab_size", kVocabularyMax, rows) != rows) {
        keys.refuse("vocab_size", std::string("as many as ") + kEmbeddings + " has rows",
                    std::to_string(keys.count("vocab_size", kVocabularyMax)) + " and " +
                        std::to_string(rows));
    }
    return rows;
}

float softcap(const Keys &keys, const char *key) {
    return keys.has(key) ? static_cast<float>(keys.positive(key)) : 0.0F;
}

// What all architectures have in common.
Config parse_decoder(const Keys &keys) {
    Config config;
    config.architecture = keys.architecture;
    config.layers = keys.count("block_count", kLayersMax);
    config.hidden = keys.count("embedding_length", kWidthMax);
    config.heads = keys.count_of_layers("attention.head_count", kWidthMax, config.layers);
    config.kv_heads =
        keys.has("attention.head_count_kv")
            ? keys.count_of_layers("attention.head_count_kv", kWidthMax, config.layers)
            : config.heads;
    parse_head_sizes(keys, config);
    config.intermediate = keys.count_of_layers("feed_forward_length", kWidthMax, config.layers);
    config.context = keys.count("context_length", kContextMax);
    config.vocabulary = parse_vocabulary(keys);
    config.norm_eps = static_cast<float>(keys.positive("attention.layer_norm_rms_epsilon"));
    const double scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
    config.attention_scale = static_cast<float>(keys.positive("attention.scale", scale));
    config.attention_softcap = softcap(keys, "attn_logit_softcapping");
    config.final_softcap = softcap(keys, "final_logit_softcapping");
    config.tied_head = !has_tensor(keys.file, "output.weight");
    config.attention_bias = has_tensor(keys.file, "blk.0.attn_q.bias");
    config.output_bias = config.attention_bias && has_tensor(keys.file, "blk.0.attn_output.bias");
    config.mlp_bias = has_tensor(keys.file, "blk.0.ffn_gate.bias");
    return config;
}

Rope parse_rope(const Keys &keys, double base_fallback) {
    Rope rope;
    rope.base = keys.positive("rope.freq_base", base_fallback);
    const bool scaled = keys.has("rope.scaling.factor");
    const bool scaled_of_old = keys.has("rope.scale_linear");
    const std::string kind = keys.file.text(keys.name("rope.scaling.type"))
                                 .value_or(scaled || scaled_of_old ? "linear" : "none");
    if (kind == "linear") {
        rope.factor =
            keys.positive(scaled_of_old && !scaled ? "rope.scale_linear" : "rope.scaling.factor");
        rope.scaling = rope.factor == 1.0 ? RopeScaling::none : RopeScaling::linear;
    } else if (kind != "none") {
        unsupported(keys.file, "metadata " + keys.name("rope.scaling.type") + " is \"" + kind +
                                   "\" (none and linear are supported)");
    }
    return rope;
}

// Llama 3's scaling comes as one factor for each frequency.
std::vector<float> parse_rope_factors(const GgufFile &file, uint32_t head_dim) {
    if (!has_tensor(file, kRopeFactors)) {
        return {};
    }
    const GgufTensor &tensor = file.tensor(kRopeFactors);
    const uint32_t half = head_dim / 2;
    if (tensor.type != GgufType::f32 || tensor.shape != std::vector<uint64_t>{half}) {
        fail(Status::corrupt, "tensor %s in %s: expected F32 [%u]", kRopeFactors,
             file.names[tensor.file].c_str(), half);
    }
    std::vector<float> factors(half);
    file.files[tensor.file]->read(factors.data(), half * sizeof(float), tensor.offset_bytes);
    for (uint32_t i = 0; i < half; ++i) {
        if (!(factors[i] >= 0x1p-126F && factors[i] <= 0x1p127F)) {
            fail(Status::corrupt, "tensor %s in %s: the factor at index %u is not a number above 0",
                 kRopeFactors, file.names[tensor.file].c_str(), i);
        }
    }
    return factors;
}

// Which layers have a window: said one by one, or all but every pattern-th; 0: all of them.
std::vector<bool> parse_local_layers(const Keys &keys, uint32_t layers, uint32_t fallback) {
    constexpr char kPattern[] = "attention.sliding_window_pattern";
    if (keys.file.is_array(keys.name(kPattern))) {
        std::vector<bool> local = *keys.file.booleans(keys.name(kPattern));
        if (local.size() != layers) {
            keys.refuse(kPattern, "one for each of " + std::to_string(layers) + " layers",
                        std::to_string(local.size()));
        }
        return local;
    }
    const uint32_t pattern = keys.count(kPattern, kLayersMax, fallback, 0);
    std::vector<bool> local(layers);
    for (uint32_t i = 0; i < layers; ++i) {
        local[i] = pattern == 0 || (i + 1) % pattern != 0;
    }
    return local;
}

// Layers that share one rope; those with a window all have the same.
void set_layers(const Keys &keys, bool windows, Config &config) {
    const uint32_t window = windows ? keys.count("attention.sliding_window", kContextMax, 0, 0) : 0;
    Rope rope = parse_rope(keys, 10000.0);
    rope.factors = parse_rope_factors(keys.file, config.head_dim);
    const uint32_t index = rope_index(config, rope);
    for (const bool local : parse_local_layers(keys, config.layers, 0)) {
        config.layer.push_back({local ? window : 0, index});
    }
}

// Llama, Mistral, SmolLM2. Pairs that rope turns together lie side by side.
void finish_llama(const Keys &keys, Config &config) {
    config.interleaved_rope = true;
    set_layers(keys, true, config);
}

void finish_phi3(const Keys &keys, Config &config) {
    config.fused_tensors = true;
    set_layers(keys, true, config);
}

// No published converter writes windows of Qwen's, as theirs are off. One as long as the context
// leaves nothing out.
void refuse_window(const Keys &keys, const Config &config) {
    constexpr char kWindow[] = "attention.sliding_window";
    const uint32_t window = keys.count(kWindow, kContextMax, 0, 0);
    if (window != 0 && window < config.context) {
        unsupported(keys.file, "metadata " + keys.name(kWindow) + " is " + std::to_string(window) +
                                   "; windows of " + keys.architecture + " are not supported");
    }
}

void finish_qwen2(const Keys &keys, Config &config) {
    refuse_window(keys, config);
    set_layers(keys, false, config);
}

void finish_qwen3(const Keys &keys, Config &config) {
    refuse_window(keys, config);
    config.query_key_norm = true;
    set_layers(keys, false, config);
}

// Norm weights are stored with their one. Five local layers, then a global one; local layers have
// a rope of their own, unscaled. The 27B model alone scales scores by another size than a head's.
void finish_gemma3(const Keys &keys, Config &config) {
    constexpr uint32_t kPattern = 6, kLayers27 = 62;
    config.query_key_norm = true;
    config.post_norms = true;
    config.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden)));
    config.activation = Activation::gelu_tanh;
    if (config.layers == kLayers27 && !keys.has("attention.scale")) {
        config.attention_scale =
            static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.hidden) / config.heads));
    }
    const Rope global = parse_rope(keys, 1e6);
    Rope local;
    local.base = keys.positive("rope.freq_base_swa", 10000.0);
    const uint32_t window = keys.count("attention.sliding_window", kContextMax);
    for (const bool is_local : parse_local_layers(keys, config.layers, kPattern)) {
        config.layer.push_back(
            {is_local ? window : 0, rope_index(config, is_local ? local : global)});
    }
}

struct Family {
    const char *name;
    void (*finish)(const Keys &keys, Config &config);
};
constexpr Family kFamilies[] = {{"llama", finish_llama},
                                {"gemma3", finish_gemma3},
                                {"qwen2", finish_qwen2},
                                {"qwen3", finish_qwen3},
                                {"phi3", finish_phi3}};

const Family &find_family(const GgufFile &file, const std::string &architecture) {
    std::string known;
    for (const Family &family : kFamilies) {
        if (architecture == family.name) {
            return family;
        }
        known += (known.empty() ? "" : ", ") + std::string(family.name);
    }
    unsupported(file, "general.architecture \"" + architecture + "\" is not supported (" + known +
                          " are)");
}

} // namespace

Config read_config(const GgufFile &file) {
    const kernels::FloatEnvironment environment; // as for config.json
    const std::string type = file.text("general.type").value_or("model");
    if (type != "model") {
        unsupported(file, "general.type \"" + type + "\" is not supported (model is)");
    }
    const std::string architecture = file.text("general.architecture").value_or("");
    const Family &family = find_family(file, architecture);
    const Keys keys{file, architecture};
    refuse_unsupported(keys);
    refuse_old_blocks(file);
    Config config = parse_decoder(keys);
    check_sizes(config, {file.names[0] + ": metadata " + architecture, "attention.head_count",
                         "attention.head_count_kv", "attention.key_length"});
    family.finish(keys, config);
    read_token_ids(file, config);
    return config;
}

} // namespace stasis
