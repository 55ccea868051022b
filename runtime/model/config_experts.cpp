// Mixtures of experts in a config.json; see config_fields.h. Semantics: transformers,
// models/qwen3_moe/modeling_qwen3_moe.py.
#include "format/state/error.h"
#include "runtime/model/config_fields.h"

namespace stasis {

Experts parse_experts(const Fields &fields, const ExpertDefaults &defaults) {
    Experts experts;
    experts.count = fields.count(defaults.count_key, kExpertsMax, defaults.count);
    experts.chosen = fields.count(defaults.chosen_key, kExpertsMax, defaults.chosen);
    experts.intermediate =
        fields.count(defaults.intermediate_key, kWidthMax, defaults.intermediate);
    if (experts.chosen > experts.count) {
        fields.refuse(defaults.chosen_key, ("at most " + std::string(defaults.count_key) + ", " +
                                            std::to_string(experts.count))
                                               .c_str());
    }
    return experts;
}

void set_expert_layers(const Fields &fields, Config &config) {
    const uint32_t step = fields.count("decoder_sparse_step", kLayersMax, 1);
    for (uint32_t i = 0; i < config.layers; ++i) {
        config.layer[i].experts = (i + 1) % step == 0;
    }
    if (!fields.has("mlp_only_layers")) {
        return;
    }
    const Json::Array *dense = fields.object.find("mlp_only_layers")->array();
    if (dense == nullptr) {
        fields.refuse("mlp_only_layers", "an array of layers");
    }
    for (const Json &each : *dense) {
        const uint64_t *index = each.count();
        if (index == nullptr || *index >= config.layers) {
            fields.refuse("mlp_only_layers", "layers below num_hidden_layers");
        }
        config.layer[*index].experts = false;
    }
}

} // namespace stasis
