// Writes and checks the description of a model; see describe.h. Keys: ggml's docs/gguf.md, and
// gguf-py's gguf/constants.py.
#include "runtime/model/gguf/describe.h"

#include <algorithm>
#include <cmath>

#include "runtime/model/family/family.h"
#include "runtime/model/rope.h"

namespace stasis {

namespace {

// Returns the RoPE of layers that have one and no window: the only one that files describe in full.
const Rope &global_rope(const Config &config) {
    const auto global =
        std::find_if(config.layer.begin(), config.layer.end(), [&](const LayerConfig &layer) {
            return layer.window == 0 && config.ropes[layer.rope].scaling != RopeScaling::still;
        });
    return config.ropes[global == config.layer.end() ? config.layer[0].rope : global->rope];
}

// Writes the window, and the layers that have it: all but every n-th (0: all), or a list.
void write_windows(const Config &config, const WrittenKeys &keys, const Family &family) {
    const uint32_t usual_pattern = family.gguf_pattern;
    std::vector<bool> local;
    uint32_t window = 0;
    for (const LayerConfig &layer : config.layer) {
        local.push_back(layer.window != 0);
        window = std::max(window, layer.window);
    }
    if (window == 0 && usual_pattern == 0) {
        return;
    }
    const uint32_t stated = config.bidirectional ? (window - 1) * 2 : window; // both sides
    keys.integer("attention.sliding_window", window != 0 ? stated : config.context);
    // The first global layer suggests the pattern; the list is written only if some layer breaks
    // it.
    const auto global = std::find(local.begin(), local.end(), false);
    const auto pattern =
        global == local.end() ? 0 : static_cast<uint32_t>(global - local.begin()) + 1;
    bool regular = true;
    for (uint32_t i = 0; i < config.layers; ++i) {
        regular = regular && local[i] == (pattern == 0 || (i + 1) % pattern != 0);
    }
    if (!regular || family.gguf_lists) {
        keys.metadata.booleans(keys.prefix + "attention.sliding_window_pattern", local);
    } else if (pattern != usual_pattern) {
        keys.integer("attention.sliding_window_pattern", pattern);
    }
}

// Writes the scale of scores if it is not the one of the head's size.
void describe_scale(const Config &config, const WrittenKeys &keys) {
    const double usual = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
    if (config.attention_scale != static_cast<float>(usual)) {
        keys.number("attention.scale", static_cast<double>(config.attention_scale));
    }
}

void describe_rope(const Rope &rope, const WrittenKeys &keys) {
    keys.number("rope.freq_base", rope.base);
    if (rope.scaling == RopeScaling::linear) {
        keys.text("rope.scaling.type", "linear");
        keys.number("rope.scaling.factor", rope.factor);
    }
    if (rope.scaling == RopeScaling::longrope) {
        keys.text("rope.scaling.type", "longrope");
        keys.integer("rope.scaling.original_context_length", rope.original_context);
        keys.number(kGgufAmplitude, rope.amplitude);
    }
    if (rope.scaling != RopeScaling::yarn) {
        return;
    }
    keys.text("rope.scaling.type", "yarn");
    keys.number("rope.scaling.factor", rope.factor);
    keys.integer("rope.scaling.original_context_length", rope.original_context);
    keys.number("rope.scaling.yarn_beta_fast", rope.turns_fast);
    keys.number("rope.scaling.yarn_beta_slow", rope.turns_slow);
    // What follows from the factor is not written, so that it is not rounded to f32.
    if (rope.amplitude == 1.0) {
        keys.number("rope.scaling.yarn_log_multiplier", 1.0);
    } else if (rope.amplitude != yarn_amplitude(rope.factor, 1.0)) {
        keys.number("rope.scaling.yarn_attn_factor", rope.amplitude);
    }
}

// Writes the sizes that all layers have.
void describe_sizes(const Config &config, const Family &family, const WrittenKeys &keys) {
    if (config.intermediate != 0) { // else every layer has experts
        keys.integer("feed_forward_length", config.intermediate);
    }
    if (family.layers_without_heads) {
        std::vector<int32_t> counts;
        for (const LayerConfig &layer : config.layer) {
            counts.push_back(layer.recurrent ? 0 : static_cast<int32_t>(config.kv_heads));
        }
        keys.integers("attention.head_count_kv", counts);
    } else {
        keys.integer("attention.head_count_kv", config.kv_heads);
    }
    keys.integer("attention.key_length", config.head_dim);
    keys.integer("attention.value_length", config.head_dim);
    keys.integer("rope.dimension_count", config.rotary());
}

[[noreturn]] void refuse(const std::string &what) {
    fail(Status::unsupported, "a GGUF file cannot say this model's %s", what.c_str());
}

// Compares as f32, the type of metadata.
bool same(double a, double b) {
    return static_cast<float>(a) == static_cast<float>(b);
}

// Compares the stretch of two RoPEs, but for llama3's, which files give as factors.
bool same_yarn(const Rope &meant, const Rope &read) {
    return same(meant.factor, read.factor) && same(meant.turns_fast, read.turns_fast) &&
           same(meant.turns_slow, read.turns_slow) && meant.whole_bounds == read.whole_bounds &&
           meant.original_context == read.original_context;
}

bool same_rope(const Rope &meant, const std::vector<float> &factors, const Rope &read) {
    const bool is_long = meant.scaling == RopeScaling::longrope;
    if (is_long != (read.scaling == RopeScaling::longrope) ||
        meant.long_factors != read.long_factors ||
        (is_long && meant.original_context != read.original_context)) {
        return false;
    }
    const bool linear = meant.scaling == RopeScaling::linear;
    const bool yarn = meant.scaling == RopeScaling::yarn;
    if (meant.scaling == RopeScaling::still) {
        return read.scaling == RopeScaling::still;
    }
    return read.scaling != RopeScaling::still && same(meant.base, read.base) &&
           linear == (read.scaling == RopeScaling::linear) &&
           yarn == (read.scaling == RopeScaling::yarn) &&
           (!linear || same(meant.factor, read.factor)) && (!yarn || same_yarn(meant, read)) &&
           meant.rotary == read.rotary && meant.still_from == read.still_from &&
           same(meant.amplitude, read.amplitude) && factors == read.factors;
}

void expect(bool good, const char *what) {
    if (!good) {
        refuse(what);
    }
}

void check_experts(const Config &meant, const Config &read) {
    for (uint32_t i = 0; i < meant.layers; ++i) {
        expect(meant.layer[i].experts == read.layer[i].experts,
               ("layer " + std::to_string(i) + ", which has no experts").c_str());
    }
    const Experts &a = meant.experts, &b = read.experts;
    expect(a.renormalised == b.renormalised, "norm_topk_prob, which is false");
    expect(a.count == b.count && a.chosen == b.chosen && a.intermediate == b.intermediate &&
               a.shared == b.shared && a.router_bias == b.router_bias &&
               a.beside_mlp == b.beside_mlp,
           "experts");
}

// Value heads may be in another order, and rates in place of their logarithms.
void check_recurrent(const Config &meant, const Config &read) {
    for (uint32_t i = 0; i < meant.layers; ++i) {
        expect(meant.layer[i].recurrent == read.layer[i].recurrent,
               ("kind of layer " + std::to_string(i)).c_str());
    }
    const Recurrent &a = meant.recurrent, &b = read.recurrent;
    expect(a.key_heads == b.key_heads && a.value_heads == b.value_heads && a.key_dim == b.key_dim &&
               a.value_dim == b.value_dim && a.taps == b.taps && a.scan == b.scan,
           "recurrent layers");
    expect(a.convolution_bias == b.convolution_bias, "mamba_conv_bias");
    expect(a.step_least == b.step_least && a.step_most == b.step_most, "time_step_limit");
    expect(meant.output_gate == read.output_gate, "attn_output_gate");
    expect(meant.rotary() == read.rotary(), "partial_rotary_factor");
}

} // namespace

void describe_config(const Config &config, GgufMetadata &metadata) {
    const Family &family = family_of(config);
    const WrittenKeys keys{std::string(family.gguf) + ".", metadata};
    metadata.text("general.architecture", family.gguf);
    metadata.text("general.type", "model");
    // Sizes, then RoPE, windows and scales.
    keys.integer("context_length", config.context);
    keys.integer("embedding_length", config.hidden);
    keys.integer("block_count", config.layers + config.mtp_layers);
    keys.integer("vocab_size", config.vocabulary);
    keys.integer("attention.head_count", config.heads);
    if (family.write_gguf_sizes != nullptr) {
        family.write_gguf_sizes(config, keys);
    } else {
        describe_sizes(config, family, keys);
    }
    keys.number("attention.layer_norm_rms_epsilon", static_cast<double>(config.norm_eps));
    const Rope &rope = global_rope(config);
    describe_rope(rope, keys);
    write_windows(config, keys, family);
    if (family.write_gguf != nullptr) {
        family.write_gguf(config, keys);
    }
    describe_scale(config, keys);
    if (config.attention_softcap != 0) {
        keys.number("attn_logit_softcapping", static_cast<double>(config.attention_softcap));
    }
    if (config.final_softcap != 0) {
        keys.number("final_logit_softcapping", static_cast<double>(config.final_softcap));
    }
}

// Returns the factors of a RoPE in every session, or in those that are not long.
static std::vector<float> factors_of(const Config &config, const Rope &rope) {
    if (rope.scaling != RopeScaling::llama3) {
        return rope.factors;
    }
    // A factor is what the rule divides the frequency by.
    Rope plain;
    plain.base = rope.base;
    const std::vector<double> unscaled = rope_frequencies(plain, config.head_dim);
    const std::vector<double> scaled = rope_frequencies(rope, config.head_dim);
    std::vector<float> factors;
    for (size_t i = 0; i < scaled.size(); ++i) {
        factors.push_back(static_cast<float>(unscaled[i] / scaled[i]));
    }
    return factors;
}

std::vector<GgufFactors> rope_factors(const Config &config) {
    const Rope &rope = global_rope(config);
    const std::vector<float> factors = factors_of(config, rope);
    if (rope.scaling == RopeScaling::longrope) {
        return {{kGgufShortFactors, factors}, {kGgufLongFactors, rope.long_factors}};
    }
    if (family_of(config).gguf_lists) { // as llama.cpp's converter writes it
        constexpr float kStill = 1e30F;
        std::vector<float> parts(config.rotary_of(rope) / 2, rope.still_from == 0 ? 1.0F : kStill);
        std::fill_n(parts.begin(), rope.still_from, 1.0F);
        return {{kGgufRopeFactors, parts}};
    }
    return factors.empty() ? std::vector<GgufFactors>{}
                           : std::vector<GgufFactors>{{kGgufRopeFactors, factors}};
}

static void check_layers(const Config &meant, const Config &read) {
    expect(meant.kv_heads == read.kv_heads && meant.head_dim == read.head_dim &&
               meant.global_kv_heads == read.global_kv_heads &&
               meant.global_head_dim == read.global_head_dim,
           "sizes of heads");
    expect(meant.value_norm == read.value_norm &&
               meant.global_keys_as_values == read.global_keys_as_values,
           "values");
    expect(meant.layer_inputs == read.layer_inputs && meant.layer_scalars == read.layer_scalars,
           "inputs and scalars of layers");
    for (uint32_t i = 0; i < meant.layers; ++i) {
        const LayerConfig &a = meant.layer[i], &b = read.layer[i];
        expect(a.keys_of == b.keys_of && meant.intermediate_of(a) == read.intermediate_of(b),
               ("keys or MLP of layer " + std::to_string(i)).c_str());
    }
}

void check_described(const Config &meant, const Config &read) {
    check_experts(meant, read);
    check_recurrent(meant, read);
    check_layers(meant, read);
    expect(meant.query_key_norm == read.query_key_norm && meant.joint_norms == read.joint_norms &&
               meant.pre_norms == read.pre_norms && meant.post_norms == read.post_norms,
           "norms");
    expect(meant.query_growth == read.query_growth &&
               meant.query_growth_context == read.query_growth_context,
           "llama_4_scaling_beta");
    expect(meant.attention_bias == read.attention_bias && meant.output_bias == read.output_bias &&
               meant.mlp_bias == read.mlp_bias,
           "biases");
    expect(meant.bidirectional == read.bidirectional, "direction of attention");
    expect(meant.tied_head == read.tied_head, "output head");
    expect(meant.mtp_layers == read.mtp_layers, "MTP head");
    expect(meant.norm_eps == read.norm_eps, "rms_norm_eps");
    expect(meant.embedding_scale == read.embedding_scale, "scale of embeddings");
    expect(meant.attention_scale == read.attention_scale, "attention scale");
    expect(meant.residual_scale == read.residual_scale, "residual_multiplier");
    expect(meant.logits_divisor == read.logits_divisor, "logits_scaling");
    expect(meant.attention_softcap == read.attention_softcap &&
               meant.final_softcap == read.final_softcap,
           "soft caps");
    expect(meant.activation == read.activation, "activation");
    expect(meant.gate_limit == read.gate_limit, "swiglu_limit");
    expect(meant.attention_sinks == read.attention_sinks, "sinks");
    // Each layer's window and RoPE; the global RoPE has its factors instead of a rule.
    const std::vector<float> factors = factors_of(meant, global_rope(meant));
    for (uint32_t i = 0; i < meant.layers; ++i) {
        const LayerConfig &layer = meant.layer[i];
        expect(layer.window == read.layer[i].window,
               ("window of layer " + std::to_string(i)).c_str());
        const Rope &rope = meant.ropes[layer.rope];
        const bool global = &rope == &global_rope(meant);
        expect(same_rope(rope, global ? factors : rope.factors, read.ropes[read.layer[i].rope]),
               ("rope of layer " + std::to_string(i)).c_str());
    }
    const std::vector<uint32_t> &ends = meant.end_tokens; // in any order
    expect(ends.size() == read.end_tokens.size() &&
               std::is_permutation(ends.begin(), ends.end(), read.end_tokens.begin()),
           "end tokens");
}

} // namespace stasis
