// config.json of Llama and what is shaped like it: Mistral, and what Qwen and Phi-3 share with
// them. Defaults of absent fields: transformers, LlamaConfig, MistralConfig and Phi3Config.
#include <cmath>

#include "format/state/error.h"
#include "runtime/model/config_fields.h"

namespace stasis {

Config parse_decoder(const Fields &fields, const DecoderDefaults &defaults) {
    Config config;
    config.architecture = defaults.architecture;
    config.layers = fields.count("num_hidden_layers", kLayersMax);
    config.hidden = fields.count("hidden_size", kWidthMax);
    config.heads = fields.count("num_attention_heads", kWidthMax);
    // Absent is the family's default, but null as many as there are heads.
    const bool grouped =
        defaults.kv_heads != 0 && fields.object.find("num_key_value_heads") == nullptr;
    config.kv_heads =
        fields.count("num_key_value_heads", kWidthMax, grouped ? defaults.kv_heads : config.heads);
    uint32_t head_dim = defaults.head_dim;
    if (!fields.has("head_dim") && head_dim == 0) {
        if (config.hidden % config.heads != 0) {
            fields.refuse("num_attention_heads",
                          "a divisor of hidden_size, as head_dim is not given");
        }
        head_dim = config.hidden / config.heads;
    }
    config.head_dim = fields.count("head_dim", kWidthMax, head_dim);
    config.intermediate = fields.count("intermediate_size", kWidthMax);
    config.vocabulary = fields.count("vocab_size", kVocabularyMax);
    config.context = fields.count("max_position_embeddings", kContextMax, defaults.context);
    config.norm_eps = static_cast<float>(fields.positive("rms_norm_eps", defaults.norm_eps));
    config.tied_head = fields.flag("tie_word_embeddings", false);
    config.attention_scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
    config.activation = parse_activation(fields, "hidden_act", "silu");
    return config;
}

Config parse_llama(const Fields &fields) {
    Config config = parse_decoder(fields, {"llama", 0, 0, 2048, 1e-6});
    config.attention_bias = config.output_bias = fields.flag("attention_bias", false);
    config.mlp_bias = fields.flag("mlp_bias", false);
    set_layers(fields, 0, std::vector<bool>(config.layers, false), config);
    return config;
}

// All layers have a window, or none.
Config parse_mistral(const Fields &fields) {
    Config config = parse_decoder(fields, {"mistral", 8, 0, 131072, 1e-6});
    // Absent is the default, but null no window, as in all models after the first.
    const bool local =
        fields.has("sliding_window") || fields.object.find("sliding_window") == nullptr;
    const uint32_t window = local ? fields.count("sliding_window", kContextMax, 4096) : 0;
    set_layers(fields, window, std::vector<bool>(config.layers, local), config);
    return config;
}

Config parse_phi3(const Fields &fields) {
    Config config = parse_decoder(fields, {"phi3", 0, 0, 4096, 1e-5});
    config.fused_tensors = true;
    const bool local = fields.has("sliding_window");
    const uint32_t window = local ? fields.count("sliding_window", kContextMax) : 0;
    set_layers(fields, window, std::vector<bool>(config.layers, local), config);
    if (config.ropes[0].scaling != RopeScaling::none) { // Phi3Config.validate_rope knows longrope
        fail(Status::unsupported, "%sthis rope scaling is not one that phi3 models have",
             fields.name.c_str());
    }
    return config;
}

} // namespace stasis
