// Reads the fields of config.json that families shaped like Llama share.
#include <cmath>

#include "runtime/model/config_fields.h"
#include "runtime/model/family/family.h"

namespace stasis {

Config parse_decoder(const Fields &fields, const DecoderDefaults &defaults) {
    Config config;
    config.architecture = defaults.architecture;
    config.layers = fields.count("num_hidden_layers", kLayersMax);
    config.hidden = fields.count("hidden_size", kWidthMax);
    config.heads = fields.count("num_attention_heads", kWidthMax);
    // An absent field means the family's default, but null means as many as there are heads.
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
    config.intermediate = fields.count("intermediate_size", kWidthMax, defaults.intermediate);
    config.vocabulary = fields.count("vocab_size", kVocabularyMax);
    config.context = fields.count("max_position_embeddings", kContextMax, defaults.context);
    config.norm_eps = static_cast<float>(fields.positive("rms_norm_eps", defaults.norm_eps));
    config.tied_head = fields.flag("tie_word_embeddings", false);
    config.attention_scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
    config.activation = parse_activation(fields, "hidden_act", "silu");
    return config;
}

} // namespace stasis
