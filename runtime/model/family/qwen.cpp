// The Qwen models without recurrent layers: Qwen2 (and 2.5) has biases on query, key and value;
// Qwen3 has a norm of each head instead; Qwen3 MoE is Qwen3 with mixtures of experts. Defaults of
// absent fields: transformers, Qwen2Config, Qwen3Config and Qwen3MoeConfig.
#include "runtime/model/family/family.h"

#include <algorithm>

namespace stasis {

namespace {

// Windows are off unless `use_sliding_window` is true, whatever `sliding_window` is. If it is true,
// the layers from `max_window_layers` on have a window, unless `layer_types` lists them.
void read_qwen_layers(const Fields &fields, Config &config) {
    const bool windows = fields.flag("use_sliding_window", false);
    if (windows && fields.object.find("sliding_window") != nullptr &&
        !fields.has("sliding_window")) {
        fields.refuse("sliding_window", "a number of positions, as use_sliding_window is true");
    }
    const uint32_t window = windows ? fields.count("sliding_window", kContextMax, 4096) : 0;
    std::vector<bool> local(config.layers, false);
    if (fields.has("layer_types")) {
        local = parse_layer_types(fields, config.layers);
        if (!windows && std::find(local.begin(), local.end(), true) != local.end()) {
            fail(Status::corrupt,
                 "%slayer_types names sliding_attention, but use_sliding_window is not true",
                 fields.name.c_str());
        }
    } else if (windows) {
        const uint32_t first = fields.count("max_window_layers", kContextMax, 28, 0);
        for (uint32_t i = first; i < config.layers; ++i) {
            local[i] = true;
        }
    }
    set_layers(fields, window, local, config);
}

Config read_qwen2(const Fields &fields) {
    Config config = parse_decoder(fields, {"qwen2", 32, 0, 32768, 1e-6});
    config.attention_bias = true;
    read_qwen_layers(fields, config);
    return config;
}

Config read_qwen3(const Fields &fields) {
    Config config = parse_decoder(fields, {"qwen3", 32, 128, 32768, 1e-6});
    config.attention_bias = config.output_bias = fields.flag("attention_bias", false);
    config.query_key_norm = true;
    read_qwen_layers(fields, config);
    return config;
}

Config read_qwen3_moe(const Fields &fields) {
    Config config = parse_decoder(fields, {"qwen3_moe", 4, 0, 32768, 1e-6});
    config.attention_bias = config.output_bias = fields.flag("attention_bias", false);
    config.query_key_norm = true;
    config.experts = parse_experts(fields, {128, 8, 768});
    config.experts.renormalised = fields.flag("norm_topk_prob", false);
    read_qwen_layers(fields, config);
    set_expert_layers(fields, config);
    return config;
}

// No published converter writes windows of Qwen, because they are off. A window as long as the
// context hides nothing.
void refuse_window(const Keys &keys, const Config &config) {
    constexpr char kWindow[] = "attention.sliding_window";
    const uint32_t window = keys.count(kWindow, kContextMax, 0, 0);
    if (window != 0 && window < config.context) {
        unsupported(keys.file, "metadata " + keys.name(kWindow) + " is " + std::to_string(window) +
                                   "; windows of " + keys.architecture + " are not supported");
    }
}

void read_gguf_qwen2(const Keys &keys, Config &config) {
    refuse_window(keys, config);
    set_layers(keys, false, config);
}

void read_gguf_qwen3(const Keys &keys, Config &config) {
    refuse_window(keys, config);
    config.query_key_norm = true;
    set_layers(keys, false, config);
}

// Files say nothing of layers without experts, and their readers know none: every layer has them,
// and their shares are renormalised.
void read_gguf_qwen3_moe(const Keys &keys, Config &config) {
    read_gguf_qwen3(keys, config);
    config.experts = parse_experts(keys, config);
    config.experts.renormalised = true;
    for (LayerConfig &layer : config.layer) {
        layer.experts = true;
    }
}

} // namespace

const Family kQwen2 = {.name = "qwen2",
                       .shown = "Qwen2",
                       .published = {{"qwen2", "Qwen2ForCausalLM"}, {}},
                       .read = read_qwen2,
                       .bos = kNoToken,
                       .eos = kNoToken,
                       .gguf = "qwen2",
                       .gguf_pairs = false,
                       .read_gguf = read_gguf_qwen2,
                       .gguf_pattern = 0,
                       .write_gguf = nullptr};

const Family kQwen3 = {.name = "qwen3",
                       .shown = "Qwen3",
                       .published = {{"qwen3", "Qwen3ForCausalLM"}, {}},
                       .read = read_qwen3,
                       .bos = kNoToken,
                       .eos = kNoToken,
                       .gguf = "qwen3",
                       .gguf_pairs = false,
                       .read_gguf = read_gguf_qwen3,
                       .gguf_pattern = 0,
                       .write_gguf = nullptr};

const Family kQwen3Moe = {.name = "qwen3_moe",
                          .shown = "Qwen3 MoE",
                          .published = {{"qwen3_moe", "Qwen3MoeForCausalLM"}, {}},
                          .read = read_qwen3_moe,
                          .bos = kNoToken,
                          .eos = kNoToken,
                          .gguf = "qwen3moe",
                          .gguf_pairs = false,
                          .read_gguf = read_gguf_qwen3_moe,
                          .gguf_pattern = 0,
                          .write_gguf = describe_experts,
                          .limits = "devices"};

} // namespace stasis
