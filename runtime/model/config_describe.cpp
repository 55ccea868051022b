// The canonical description of a Config in a model's identity. It has everything that determines
// results and nothing else, so that equal meaning gives equal text.
#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>
#include <iterator>

#include "runtime/model/activation_names.h"
#include "runtime/model/config.h"

namespace stasis {

namespace {

// Returns the shortest text that reads back as the same number. Unlike printf's, it depends neither
// on the host's locale nor on its rounding mode.
template <typename Number> std::string exact(Number value) {
    char text[32];
    const std::to_chars_result result = std::to_chars(text, text + sizeof text, value);
    return std::string(text, result.ptr);
}

std::string yes_or_no(bool value) {
    return value ? "yes" : "no";
}

std::string describe_bias(const Config &config) {
    return config.attention_bias && !config.output_bias ? "query, key, value"
                                                        : yes_or_no(config.attention_bias);
}

const char *name_of(Activation activation) {
    const auto *names =
        std::find_if(std::begin(kActivationNames), std::end(kActivationNames),
                     [&](const ActivationNames &each) { return each.activation == activation; });
    assert(names != std::end(kActivationNames));
    return names->identity;
}

std::string describe_yarn(const Rope &rope) {
    return ", yarn, factor " + exact(rope.factor) + ", fast " + exact(rope.turns_fast) + ", slow " +
           exact(rope.turns_slow) + (rope.whole_bounds ? "" : ", between pairs") +
           ", original context " + std::to_string(rope.original_context);
}

std::string describe_factors(const char *before, const std::vector<float> &factors) {
    std::string text;
    for (const float factor : factors) {
        text += (text.empty() ? before : std::string(" ")) + exact(factor);
    }
    return text;
}

std::string describe_rope(const Rope &rope) {
    if (rope.scaling == RopeScaling::still) {
        return "none";
    }
    std::string text = "base " + exact(rope.base);
    if (rope.scaling == RopeScaling::linear) {
        text += ", linear, factor " + exact(rope.factor);
    } else if (rope.scaling == RopeScaling::llama3) {
        text += ", llama3, factor " + exact(rope.factor) + ", low " +
                exact(rope.low_frequency_factor) + ", high " + exact(rope.high_frequency_factor) +
                ", original context " + std::to_string(rope.original_context);
    } else if (rope.scaling == RopeScaling::yarn) {
        text += describe_yarn(rope);
    } else if (rope.scaling == RopeScaling::longrope) {
        text += ", longrope, original context " + std::to_string(rope.original_context);
    }
    if (rope.amplitude != 1.0) {
        text += ", amplitude " + exact(rope.amplitude);
    }
    if (rope.rotary != 0) {
        text += ", of " + std::to_string(rope.rotary);
    }
    if (rope.still_from != 0) {
        text += ", still from pair " + std::to_string(rope.still_from);
    }
    return text + describe_factors(", divided by ", rope.factors) +
           describe_factors(", beyond it by ", rope.long_factors);
}

std::string describe_experts(const Experts &experts) {
    std::string text = std::to_string(experts.count) + ", " + std::to_string(experts.chosen) +
                       " chosen, intermediate " + std::to_string(experts.intermediate) +
                       (experts.renormalised ? ", renormalised" : "") +
                       (experts.router_bias ? ", router with biases" : "") +
                       (experts.beside_mlp ? ", beside an MLP" : "");
    if (experts.shared != 0) {
        text += ", shared " + std::to_string(experts.shared);
    }
    return text;
}

std::string describe_recurrent(const Recurrent &sizes) {
    const auto heads = [](uint32_t count, uint32_t dim) {
        return std::to_string(count) + " of " + std::to_string(dim);
    };
    if (sizes.short_convolutions()) {
        return "short convolutions, " + std::to_string(sizes.taps) + " taps";
    }
    if (sizes.scan) {
        const bool limited = sizes.step_least > 0.0F || std::isfinite(sizes.step_most);
        return "selective scan, groups " + heads(sizes.key_heads, sizes.key_dim) + ", heads " +
               heads(sizes.value_heads, sizes.value_dim) + ", " + std::to_string(sizes.taps) +
               " taps" + (sizes.convolution_bias ? ", convolution with biases" : "") +
               (limited ? ", steps " + exact(sizes.step_least) + " to " + exact(sizes.step_most)
                        : "") +
               (sizes.stored_rates ? ", rates" : "");
    }
    return "key heads " + heads(sizes.key_heads, sizes.key_dim) +
           (sizes.tiled ? ", tiled value heads " : ", value heads ") +
           heads(sizes.value_heads, sizes.value_dim) + ", " + std::to_string(sizes.taps) + " taps" +
           (sizes.stored_rates ? ", rates" : "");
}

// Adds what only some architectures of attention, and of the stream, have.
void describe_attention(const Config &config,
                        std::vector<std::pair<std::string, std::string>> &pairs) {
    if (config.joint_norms) {
        pairs.emplace_back("joint_norms", "yes");
    }
    if (config.bidirectional) {
        pairs.emplace_back("bidirectional", "yes");
    }
    if (!config.pre_norms) {
        pairs.emplace_back("pre_norms", "no");
    }
    if (config.residual_scale != 1.0F) {
        pairs.emplace_back("residual_scale", exact(config.residual_scale));
    }
    if (config.logits_divisor != 1.0F) {
        pairs.emplace_back("logits_divisor", exact(config.logits_divisor));
    }
    if (config.query_growth != 0.0F) {
        pairs.emplace_back("query_growth", exact(config.query_growth) + ", context " +
                                               std::to_string(config.query_growth_context));
    }
}

// Adds what only architectures have whose layers differ in their sizes.
void describe_sizes(const Config &config, std::vector<std::pair<std::string, std::string>> &pairs) {
    const auto add = [&](const char *name, uint32_t value) {
        if (value != 0) {
            pairs.emplace_back(name, std::to_string(value));
        }
    };
    add("global_kv_heads", config.global_kv_heads);
    add("global_head_dim", config.global_head_dim);
    add("layer_inputs", config.layer_inputs);
    const std::pair<const char *, bool> flags[] = {
        {"value_norm", config.value_norm},
        {"global_keys_as_values", config.global_keys_as_values},
        {"layer_scalars", config.layer_scalars}};
    for (const auto &[name, value] : flags) {
        if (value) {
            pairs.emplace_back(name, "yes");
        }
    }
    std::string keys, sizes;
    bool shared = false, sized = false;
    for (uint32_t i = 0; i < config.layers; ++i) {
        const LayerConfig &layer = config.layer[i];
        const char *separator = i == 0 ? "" : " ";
        keys += separator + std::to_string(layer.own_keys() ? i : layer.keys_of);
        sizes += separator + std::to_string(config.intermediate_of(layer));
        shared = shared || !layer.own_keys();
        sized = sized || layer.intermediate != 0;
    }
    if (shared) {
        pairs.emplace_back("layer_keys", keys);
    }
    if (sized) {
        pairs.emplace_back("layer_intermediate", sizes);
    }
}

// Adds what only hybrids have.
void describe_hybrid(const Config &config,
                     std::vector<std::pair<std::string, std::string>> &pairs) {
    if (config.rotary_dim != 0) {
        pairs.emplace_back("rotary_dim", std::to_string(config.rotary_dim));
    }
    if (config.output_gate) {
        pairs.emplace_back("output_gate", "yes");
    }
    if (config.recurrent.value_heads != 0) {
        std::string layers;
        for (const LayerConfig &layer : config.layer) {
            layers += (layers.empty() ? "" : " ") + std::string(layer.recurrent ? "1" : "0");
        }
        pairs.emplace_back("recurrent", describe_recurrent(config.recurrent));
        pairs.emplace_back("layer_recurrent", layers);
    }
}

} // namespace

std::vector<std::pair<std::string, std::string>> describe(const Config &config) {
    std::vector<std::pair<std::string, std::string>> pairs = {
        {"layers", std::to_string(config.layers)},
        {"hidden", std::to_string(config.hidden)},
        {"heads", std::to_string(config.heads)},
        {"kv_heads", std::to_string(config.kv_heads)},
        {"head_dim", std::to_string(config.head_dim)},
        {"intermediate", std::to_string(config.intermediate)},
        {"vocabulary", std::to_string(config.vocabulary)},
        {"context", std::to_string(config.context)},
        {"norm_eps", exact(config.norm_eps)},
        {"norm_plus_one", yes_or_no(config.norm_plus_one)},
        {"query_key_norm", yes_or_no(config.query_key_norm)},
        {"post_norms", yes_or_no(config.post_norms)},
        {"attention_bias", describe_bias(config)},
        {"mlp_bias", yes_or_no(config.mlp_bias)},
        {"tied_head", yes_or_no(config.tied_head)},
        {"embedding_scale", exact(config.embedding_scale)},
        {"attention_scale", exact(config.attention_scale)},
        {"attention_softcap", exact(config.attention_softcap)},
        {"final_softcap", exact(config.final_softcap)},
        {"activation", name_of(config.activation)},
    };
    // Fields of variable length come after the fixed ones.
    for (size_t i = 0; i < config.ropes.size(); ++i) {
        pairs.emplace_back("rope_" + std::to_string(i), describe_rope(config.ropes[i]));
    }
    std::string windows;
    std::string ropes;
    for (const LayerConfig &layer : config.layer) {
        const char *separator = windows.empty() ? "" : " ";
        windows += separator + std::to_string(layer.window);
        ropes += separator + std::to_string(layer.rope);
    }
    pairs.emplace_back("layer_windows", windows);
    pairs.emplace_back("layer_ropes", ropes);
    // Fields that older models do not have come last, and only where they have a meaning.
    if (config.experts.count != 0) {
        std::string layers;
        for (const LayerConfig &layer : config.layer) {
            layers += (layers.empty() ? "" : " ") + yes_or_no(layer.experts);
        }
        pairs.emplace_back("experts", describe_experts(config.experts));
        pairs.emplace_back("layer_experts", layers);
    }
    if (config.interleaved_rope) {
        pairs.emplace_back("rope_pairs", "side by side");
    }
    if (config.attention_sinks) {
        pairs.emplace_back("attention_sinks", "yes");
    }
    if (config.gate_limit != 0.0F) {
        pairs.emplace_back("gate_limit", exact(config.gate_limit));
    }
    describe_attention(config, pairs);
    describe_sizes(config, pairs);
    describe_hybrid(config, pairs);
    return pairs;
}

} // namespace stasis
