// config.json of the dense Qwen models: Qwen2 (2.5 among them) has biases on query, key and value,
// Qwen3 a norm of each head instead. Defaults of absent fields: transformers, Qwen2Config and
// Qwen3Config.
#include <algorithm>

#include "format/state/error.h"
#include "runtime/model/config_fields.h"

namespace stasis {

namespace {

// Windows are off unless `use_sliding_window` says so, whatever `sliding_window` says; then the
// layers from `max_window_layers` on have one, as long as `layer_types` does not name them.
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

} // namespace

Config parse_qwen2(const Fields &fields) {
    Config config = parse_decoder(fields, {"qwen2", 32, 0, 32768, 1e-6});
    config.attention_bias = true;
    read_qwen_layers(fields, config);
    return config;
}

Config parse_qwen3(const Fields &fields) {
    Config config = parse_decoder(fields, {"qwen3", 32, 128, 32768, 1e-6});
    config.attention_bias = config.output_bias = fields.flag("attention_bias", false);
    config.query_key_norm = true;
    read_qwen_layers(fields, config);
    return config;
}

} // namespace stasis
