// gpt-oss: mixtures of experts in every layer, a sink in each head, windows in every other layer.
// Defaults of absent fields: transformers, GptOssConfig; what is applied to gates:
// modeling_gpt_oss.py, GptOssExperts. That its RoPE is not truncated, and alpha of the gate
// (1.702), no metadata of GGUF files say: llama.cpp, src/models/openai-moe.cpp.
#include "runtime/model/family/family.h"

#include <cmath>

namespace stasis {

namespace {

constexpr double kBase = 150000.0, kLimit = 7.0;
constexpr uint32_t kPattern = 2; // every other layer has a window, the first one too

// What files do not say, or all say alike.
void set_constants(Config &config) {
    config.attention_bias = config.output_bias = config.mlp_bias = true;
    config.attention_sinks = true;
    config.gate_limit = static_cast<float>(kLimit);
    // A softmax over the chosen alone is the one over all, renormalised.
    config.experts.renormalised = true;
    config.experts.router_bias = true;
    for (LayerConfig &layer : config.layer) {
        layer.experts = true;
    }
}

std::vector<bool> read_local(const Fields &fields, uint32_t layers) {
    if (fields.has("layer_types")) {
        return parse_layer_types(fields, layers);
    }
    std::vector<bool> local(layers);
    for (uint32_t i = 0; i < layers; ++i) {
        local[i] = i % kPattern == 0;
    }
    return local;
}

Config read_gpt_oss(const Fields &fields) {
    Config config = parse_decoder(fields, {"gpt_oss", 8, 64, 131072, 1e-5, 2880});
    if (config.activation != Activation::silu) {
        fail(Status::unsupported, "%shidden_act is not supported (silu is)", fields.name.c_str());
    }
    if (!fields.flag("attention_bias", true)) {
        fail(Status::unsupported, "%sattention_bias is not supported if it is false",
             fields.name.c_str());
    }
    config.experts = parse_experts(
        fields, {128, 4, config.intermediate, "num_local_experts", "intermediate_size"});
    set_layers(fields, fields.count("sliding_window", kContextMax, 128),
               read_local(fields, config.layers), config);
    set_constants(config);
    config.experts.by_column = true;
    config.gate_limit = static_cast<float>(fields.positive("swiglu_limit", kLimit));
    return config;
}

void read_gpt_oss_gguf(const Keys &keys, Config &config) {
    config.experts = parse_experts(keys, config);
    const uint32_t window = keys.count("attention.sliding_window", kContextMax);
    Rope described = parse_rope(keys, kBase);
    described.whole_bounds = false;
    const uint32_t rope = rope_index(config, described);
    for (const bool local : parse_local_layers(keys, config.layers, kPattern)) {
        config.layer.push_back({local ? window : 0, rope});
    }
    set_constants(config);
}

} // namespace

const Family kGptOss = {.name = "gpt_oss",
                        .shown = "gpt-oss",
                        .published = {{"gpt_oss", "GptOssForCausalLM"}, {}},
                        .read = read_gpt_oss,
                        .bos = kNoToken,
                        .eos = kNoToken,
                        .gguf = "gpt-oss",
                        .gguf_pairs = false,
                        .read_gguf = read_gpt_oss_gguf,
                        .gguf_pattern = kPattern,
                        .write_gguf = describe_experts,
                        .quantised = "mxfp4",
                        .limits = "devices"};

} // namespace stasis
