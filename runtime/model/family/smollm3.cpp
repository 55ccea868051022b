// SmolLM3: Llama, without RoPE on some layers. Defaults of absent fields: transformers,
// SmolLM3Config. In GGUF files every fourth layer is without (llama.cpp, src/models/smollm3.cpp).
#include "runtime/model/family/family.h"

namespace stasis {

namespace {

constexpr uint32_t kStillInterval = 4;

// All layers turn but every interval-th.
std::vector<bool> turning_by_interval(uint32_t layers, uint32_t interval) {
    std::vector<bool> turning(layers);
    for (uint32_t i = 0; i < layers; ++i) {
        turning[i] = (i + 1) % interval != 0;
    }
    return turning;
}

// `no_rope_layers` says 1 of a layer that has RoPE (transformers, modeling_smollm3.py).
std::vector<bool> read_turning(const Fields &fields, uint32_t layers) {
    constexpr char kListed[] = "no_rope_layers", kInterval[] = "no_rope_layer_interval";
    if (!fields.has(kListed)) {
        return turning_by_interval(layers, fields.count(kInterval, kLayersMax, kStillInterval));
    }
    const Json::Array *listed = fields.object.find(kListed)->array();
    if (listed == nullptr || listed->size() != layers) {
        fields.refuse(kListed, "an array with 0 or 1 for each of num_hidden_layers");
    }
    std::vector<bool> turning;
    for (const Json &entry : *listed) {
        if (entry.count() == nullptr || *entry.count() > 1) {
            fields.refuse(kListed, "an array with 0 or 1 for each of num_hidden_layers");
        }
        turning.push_back(*entry.count() == 1);
    }
    return turning;
}

// Gives the layers that do not turn a RoPE that stands still.
void set_still(const std::vector<bool> &turning, Config &config) {
    for (uint32_t i = 0; i < config.layers; ++i) {
        if (!turning[i]) {
            config.layer[i].rope = rope_index(config, {.scaling = RopeScaling::still});
        }
    }
}

Config read_smollm3(const Fields &fields) {
    Config config = parse_decoder(fields, {"smollm3", 4, 0, 32768, 1e-6});
    config.attention_bias = config.output_bias = fields.flag("attention_bias", false);
    config.mlp_bias = fields.flag("mlp_bias", false);
    config.tied_head = fields.flag("tie_word_embeddings", true);
    if (fields.flag("use_sliding_window", false)) {
        fail(Status::unsupported, "%suse_sliding_window is not supported in this architecture",
             fields.name.c_str());
    }
    const std::vector<bool> turning = read_turning(fields, config.layers);
    if (fields.has("layer_types") &&
        parse_layer_types(fields, config.layers) != std::vector<bool>(config.layers, false)) {
        fail(Status::corrupt,
             "%slayer_types names sliding_attention, but use_sliding_window is "
             "not true",
             fields.name.c_str());
    }
    rope_index(config, parse_only_rope(fields, 2e6));
    config.layer.resize(config.layers);
    set_still(turning, config);
    return config;
}

void read_smollm3_gguf(const Keys &keys, Config &config) {
    config.interleaved_rope = true;
    set_layers(keys, false, config);
    set_still(turning_by_interval(config.layers, kStillInterval), config);
}

} // namespace

const Family kSmolLM3 = {.name = "smollm3",
                         .shown = "SmolLM3",
                         .published = {{"smollm3", "SmolLM3ForCausalLM"}, {}},
                         .read = read_smollm3,
                         .bos = 128000,
                         .eos = 128001,
                         .gguf = "smollm3",
                         .gguf_pairs = true,
                         .read_gguf = read_smollm3_gguf,
                         .gguf_pattern = 0,
                         .write_gguf = nullptr};

} // namespace stasis
