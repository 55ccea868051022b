// config.json of the Llama family. Defaults of absent fields: transformers, LlamaConfig.
#include <cmath>

#include "format/error.h"
#include "runtime/checkpoint/config_fields.h"

namespace stasis {

Config parse_llama(const Fields &fields) {
    Config config;
    config.architecture = "llama";
    config.layers = fields.count("num_hidden_layers", kLayersMax);
    config.hidden = fields.count("hidden_size", kWidthMax);
    config.heads = fields.count("num_attention_heads", kWidthMax);
    config.kv_heads = fields.count("num_key_value_heads", kWidthMax, config.heads);
    if (!fields.has("head_dim") && config.hidden % config.heads != 0) {
        fields.refuse("num_attention_heads", "a divisor of hidden_size, as head_dim is not given");
    }
    config.head_dim = fields.count("head_dim", kWidthMax, config.hidden / config.heads);
    config.intermediate = fields.count("intermediate_size", kWidthMax);
    config.vocabulary = fields.count("vocab_size", kVocabularyMax);
    config.context = fields.count("max_position_embeddings", kContextMax, 2048);
    config.norm_eps = static_cast<float>(fields.positive("rms_norm_eps", 1e-6));
    config.attention_bias = fields.flag("attention_bias", false);
    config.mlp_bias = fields.flag("mlp_bias", false);
    config.tied_head = fields.flag("tie_word_embeddings", false);
    config.attention_scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
    config.activation = parse_activation(fields, "hidden_act", "silu");
    const Rope rope = parse_rope(fields, "full_attention", "rope_theta", 10000.0);
    config.layer.assign(config.layers, {0, rope_index(config, rope)});
    return config;
}

} // namespace stasis
