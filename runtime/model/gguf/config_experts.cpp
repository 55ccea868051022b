// Reads and writes the sizes of mixtures of experts in the metadata of a GGUF file; see
// config_keys.h. Keys:
// gguf-py's gguf/constants.py, class LLM.
#include "runtime/model/config_fields.h"
#include "runtime/model/gguf/config_keys.h"

namespace stasis {

namespace {

constexpr char kCount[] = "expert_count", kChosen[] = "expert_used_count";
constexpr char kInner[] = "expert_feed_forward_length";

} // namespace

Experts parse_experts(const Keys &keys, const Config &config) {
    Experts experts;
    experts.count = keys.count(kCount, kExpertsMax);
    experts.chosen = keys.count(kChosen, kExpertsMax);
    if (keys.has(kInner) || config.intermediate < experts.chosen) {
        experts.intermediate = keys.count_of_layers(kInner, kWidthMax, config.layers);
    } else {
        experts.intermediate = config.intermediate / experts.chosen; // as llama.cpp reads it
    }
    if (experts.chosen > experts.count) {
        keys.refuse(kChosen, "at most expert_count, " + std::to_string(experts.count),
                    std::to_string(experts.chosen));
    }
    // Groups of experts, of which some are chosen first, are those of other architectures.
    for (const char *key : {"expert_group_count", "expert_group_used_count"}) {
        if (keys.count(key, kExpertsMax, 0, 0) > 1) {
            unsupported(keys.file, "metadata " + keys.name(key) + " is not supported");
        }
    }
    if (keys.file.number(keys.name("expert_weights_scale")).value_or(1.0) != 1.0) {
        unsupported(keys.file,
                    "metadata " + keys.name("expert_weights_scale") + " is not supported");
    }
    return experts;
}

void describe_experts(const Config &config, const WrittenKeys &keys) {
    keys.integer(kCount, config.experts.count);
    keys.integer(kChosen, config.experts.chosen);
    keys.integer(kInner, config.experts.intermediate);
}

} // namespace stasis
