// Gemma 3: the text model, alone or inside the multimodal one. Published files omit most fields;
// their defaults are those of transformers, Gemma3TextConfig.
#include "runtime/model/family/family.h"

#include <algorithm>
#include <cmath>

namespace stasis {

namespace {

// Returns whether each layer is local: listed one by one, or all but every pattern-th layer.
std::vector<bool> local_layers(const Fields &fields, uint32_t layers) {
    if (fields.has("layer_types")) {
        return parse_layer_types(fields, layers);
    }
    // transformers wrote the pattern with an underscore for some time.
    const uint32_t pattern = fields.count("sliding_window_pattern", kLayersMax,
                                          fields.count("_sliding_window_pattern", kLayersMax, 6));
    std::vector<bool> local(layers);
    for (uint32_t i = 0; i < layers; ++i) {
        local[i] = (i + 1) % pattern != 0;
    }
    return local;
}

void read_gemma3_layers(const Fields &fields, Config &config) {
    const std::vector<bool> local = local_layers(fields, config.layers);
    const Rope global_rope = parse_rope(fields, "full_attention", "rope_theta", 1e6);
    const Rope local_rope = parse_rope(fields, "sliding_attention", "rope_local_base_freq", 1e4);
    for (const bool is_local : local) {
        LayerConfig layer;
        layer.rope = rope_index(config, is_local ? local_rope : global_rope);
        layer.window = is_local ? fields.count("sliding_window", kContextMax, 4096) : 0;
        config.layer.push_back(layer);
    }
}

float softcap(const Fields &fields, const char *key) {
    return fields.has(key) ? static_cast<float>(fields.positive(key)) : 0.0F;
}

Config read_gemma3_text(const Fields &fields, bool tied_fallback) {
    Config config;
    // Sizes, then conventions, then scales.
    config.architecture = "gemma3";
    config.layers = fields.count("num_hidden_layers", kLayersMax);
    config.hidden = fields.count("hidden_size", kWidthMax);
    config.heads = fields.count("num_attention_heads", kWidthMax, 8);
    config.kv_heads = fields.count("num_key_value_heads", kWidthMax, 4);
    config.head_dim = fields.count("head_dim", kWidthMax, 256);
    config.intermediate = fields.count("intermediate_size", kWidthMax);
    config.vocabulary = fields.count("vocab_size", kVocabularyMax, 262208);
    config.context = fields.count("max_position_embeddings", kContextMax, 131072);
    config.norm_eps = static_cast<float>(fields.positive("rms_norm_eps", 1e-6));
    config.norm_plus_one = true;
    config.query_key_norm = true;
    config.post_norms = true;
    config.attention_bias = config.output_bias = fields.flag("attention_bias", false);
    config.tied_head = fields.flag("tie_word_embeddings", tied_fallback);
    config.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden)));
    config.attention_scale =
        static_cast<float>(1.0 / std::sqrt(fields.positive("query_pre_attn_scalar", 256.0)));
    config.attention_softcap = softcap(fields, "attn_logit_softcapping");
    config.final_softcap = softcap(fields, "final_logit_softcapping");
    config.activation = parse_activation(fields, "hidden_activation", "gelu_pytorch_tanh");
    read_gemma3_layers(fields, config);
    return config;
}

Config read_gemma3(const Fields &fields) {
    if (fields.text("model_type", "") == "gemma3_text") {
        return read_gemma3_text(fields, true);
    }
    const Fields text = fields.child("text_config");
    const std::string type = text.text("model_type", "gemma3_text");
    if (type != "gemma3_text") {
        fail(Status::unsupported, "%smodel_type \"%s\" is not supported (gemma3_text is)",
             text.name.c_str(), type.c_str());
    }
    refuse_unsupported(text);
    return read_gemma3_text(text, fields.flag("tie_word_embeddings", true));
}

// Half the stated window is to each side of a query, itself counted (transformers,
// Gemma3TextConfig; llama.cpp, LLAMA_SWA_TYPE_SYMMETRIC).
void look_both_ways(Config &config) {
    config.bidirectional = true;
    for (LayerConfig &layer : config.layer) {
        layer.window = layer.window == 0 ? 0 : layer.window / 2 + 1;
    }
}

Config read_embedding_gemma(const Fields &fields) {
    if (!fields.flag("use_bidirectional_attention", false)) {
        fail(Status::unsupported, "%suse_bidirectional_attention false is not supported",
             fields.name.c_str());
    }
    Config config = read_gemma3_text(fields, true);
    config.architecture = "embedding_gemma";
    look_both_ways(config);
    return config;
}

// The default pattern: five local layers, then a global one.
constexpr uint32_t kGgufPattern = 6;
constexpr double kLocalBase = 10000.0; // base of the RoPE of local layers

// Norm weights in GGUF files include the one that is added. Local layers have a RoPE of their own,
// unscaled. Only the 27B model scales scores by a size other than the head's.
void read_gemma3_gguf(const Keys &keys, Config &config) {
    constexpr uint32_t kLayers27 = 62;
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
    local.base = keys.positive("rope.freq_base_swa", kLocalBase);
    const uint32_t window = keys.count("attention.sliding_window", kContextMax);
    for (const bool is_local : parse_local_layers(keys, config.layers, kGgufPattern)) {
        config.layer.push_back(
            {is_local ? window : 0, rope_index(config, is_local ? local : global)});
    }
}

void read_embedding_gemma_gguf(const Keys &keys, Config &config) {
    read_gemma3_gguf(keys, config);
    look_both_ways(config);
}

void write_gemma3_gguf(const Config &config, const WrittenKeys &keys) {
    const auto local = std::find_if(config.layer.begin(), config.layer.end(),
                                    [](const LayerConfig &layer) { return layer.window != 0; });
    if (local != config.layer.end() && config.ropes[local->rope].base != kLocalBase) {
        keys.number("rope.freq_base_swa", config.ropes[local->rope].base);
    }
}

} // namespace

const Family kGemma3 = {.name = "gemma3",
                        .shown = "Gemma 3",
                        .published = {{"gemma3_text", "Gemma3ForCausalLM"},
                                      {"gemma3", "Gemma3ForConditionalGeneration"}},
                        .read = read_gemma3,
                        .bos = 2,
                        .eos = 1,
                        .gguf = "gemma3",
                        .gguf_pairs = false,
                        .read_gguf = read_gemma3_gguf,
                        .gguf_pattern = kGgufPattern,
                        .write_gguf = write_gemma3_gguf,
                        .limits = "images"};

const Family kEmbeddingGemma = {.name = "embedding_gemma",
                                .shown = "EmbeddingGemma",
                                .published = {{"gemma3_text", "Gemma3TextModel"}, {}},
                                .read = read_embedding_gemma,
                                .bos = 2,
                                .eos = 1,
                                .gguf = "gemma-embedding",
                                .gguf_pairs = false,
                                .read_gguf = read_embedding_gemma_gguf,
                                .gguf_pattern = kGgufPattern,
                                .write_gguf = write_gemma3_gguf,
                                .bidirectional = true,
                                .limits = "sessions"};

} // namespace stasis
