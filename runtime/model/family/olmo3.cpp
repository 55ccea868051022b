// OLMo 3: norms after attention and MLP in place of before, norms of queries and keys over all
// heads, windows on three layers of four, and scaled RoPE on the others alone. Defaults of absent
// fields: transformers, Olmo3Config. GGUF files: llama.cpp's converter and reader (conversion/
// olmo.py, src/models/olmo2.cpp).
#include "runtime/model/family/family.h"
#include "runtime/model/rope.h"

namespace stasis {

namespace {

constexpr uint32_t kOlmoPattern = 4; // every fourth layer has no window
constexpr double kOlmoBase = 500000.0;

void set_olmo_conventions(Config &config) {
    config.query_key_norm = config.joint_norms = true;
    config.pre_norms = false;
    config.post_norms = true;
}

// The first RoPE is that of the layers without a window.
void set_olmo_layers(const std::vector<bool> &local, uint32_t window, const Rope &global_rope,
                     const Rope &local_rope, Config &config) {
    for (const bool is_local : local) {
        config.layer.push_back(
            {is_local ? window : 0, rope_index(config, is_local ? local_rope : global_rope)});
    }
}

Config read_olmo3(const Fields &fields) {
    Config config = parse_decoder(fields, {"olmo3", 0, 0, 2048, 1e-5});
    set_olmo_conventions(config);
    config.attention_bias = config.output_bias = fields.flag("attention_bias", false);
    std::vector<bool> local(config.layers);
    for (uint32_t i = 0; i < config.layers; ++i) {
        local[i] = (i + 1) % kOlmoPattern != 0;
    }
    if (fields.has("layer_types")) {
        local = parse_layer_types(fields, config.layers);
    }
    set_olmo_layers(local, fields.count("sliding_window", kContextMax, 4096),
                    parse_rope(fields, "full_attention", "rope_theta", kOlmoBase),
                    parse_rope(fields, "sliding_attention", "rope_theta", kOlmoBase), config);
    return config;
}

// A file without a window is one of OLMo 2, whose layers are alike. Converters of 2025 wrote all of
// YaRN's amplitude under the name of a factor of it.
void read_olmo3_gguf(const Keys &keys, Config &config) {
    set_olmo_conventions(config);
    const uint32_t window = keys.count("attention.sliding_window", kContextMax, 0, 0);
    Rope global_rope = parse_rope(keys, 10000.0);
    if (global_rope.scaling == RopeScaling::yarn && keys.has(kGgufAmplitude)) {
        global_rope.amplitude =
            parse_amplitude(keys, kGgufAmplitude, yarn_amplitude(global_rope.factor, 1.0));
    }
    Rope local_rope;
    local_rope.base = keys.positive("rope.freq_base_swa", global_rope.base);
    std::vector<bool> local(config.layers, false);
    if (window != 0) {
        local = parse_local_layers(keys, config.layers, kOlmoPattern);
    }
    set_olmo_layers(local, window, global_rope, local_rope, config);
}

void write_olmo3_gguf(const Config &config, const WrittenKeys &keys) {
    const Rope *bases[2] = {nullptr, nullptr}; // of layers without a window, and with
    for (const LayerConfig &layer : config.layer) {
        bases[layer.window != 0] = &config.ropes[layer.rope];
    }
    if (bases[0] != nullptr && bases[1] != nullptr && bases[0]->base != bases[1]->base) {
        keys.number("rope.freq_base_swa", bases[1]->base);
    }
}

} // namespace

const Family kOlmo3 = {.name = "olmo3",
                       .shown = "OLMo 3",
                       .published = {{"olmo3", "Olmo3ForCausalLM"}, {}},
                       .read = read_olmo3,
                       .bos = kNoToken,
                       .eos = 50279,
                       .gguf = "olmo2",
                       .gguf_pairs = false,
                       .read_gguf = read_olmo3_gguf,
                       .gguf_pattern = 0,
                       .write_gguf = write_olmo3_gguf,
                       .limits = "devices"};

} // namespace stasis
