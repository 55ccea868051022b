// RoPE in a config.json: as published (rope_theta beside rope_scaling, its kind under "rope_type"
// or the older "type") and as transformers 5 writes it (rope_parameters, flat or one object for
// each layer type). Semantics: transformers, modeling_rope_utils.py.
#include <optional>
#include <string>

#include "format/state/error.h"
#include "runtime/model/config_fields.h"
#include "runtime/model/rope.h"

namespace stasis {

namespace {

// Returns the name of the object that describes RoPE; null: none.
const char *rope_key(const Fields &fields) {
    const Json *parameters = fields.object.find_value("rope_parameters");
    const Json *scaling = fields.object.find_value("rope_scaling");
    if (parameters != nullptr && scaling != nullptr && *parameters != *scaling) {
        fail(Status::corrupt, "%srope_parameters and rope_scaling contradict each other",
             fields.name.c_str());
    }
    return parameters != nullptr ? "rope_parameters"
           : scaling != nullptr  ? "rope_scaling"
                                 : nullptr;
}

// Returns a weight of YaRN's amplitude, where 0 means none.
double yarn_weight(const Fields &fields, const char *key) {
    const Json *found = fields.object.find_value(key);
    return found == nullptr || found->number() == 0.0 ? 0.0 : fields.positive(key);
}

void read_yarn(const Fields &fields, Rope &rope) {
    rope.scaling = RopeScaling::yarn;
    rope.factor = fields.positive("factor");
    rope.turns_fast = fields.positive("beta_fast", rope.turns_fast);
    rope.turns_slow = fields.positive("beta_slow", rope.turns_slow);
    rope.whole_bounds = fields.flag("truncate", true);
    rope.original_context = fields.count("original_max_position_embeddings", kContextMax);
    if (rope.turns_fast < rope.turns_slow) {
        fields.refuse("beta_fast", "a number not below beta_slow");
    }
    if (rope.base <= 1.0) {
        fields.refuse("rope_theta", "a number above 1, which yarn takes the logarithm of");
    }
    const double weight = yarn_weight(fields, "mscale");
    const double weight_all = yarn_weight(fields, "mscale_all_dim");
    const double usual =
        weight != 0.0 && weight_all != 0.0
            ? yarn_amplitude(rope.factor, weight) / yarn_amplitude(rope.factor, weight_all)
            : yarn_amplitude(rope.factor, 1.0);
    rope.amplitude = fields.positive("attention_factor", usual);
}

void read_scaling(const Fields &fields, Rope &rope) {
    const std::string kind = fields.text("rope_type", fields.text("type", ""));
    if (kind == "default" || (kind.empty() && !fields.has("factor"))) {
        return;
    }
    if (kind == "linear") {
        rope.factor = fields.positive("factor");
        // Division by 1 changes nothing, so that equal meaning gives an equal description.
        rope.scaling = rope.factor == 1.0 ? RopeScaling::none : RopeScaling::linear;
        return;
    }
    if (kind == "yarn") {
        read_yarn(fields, rope);
        return;
    }
    if (kind != "llama3") {
        fail(Status::unsupported,
             "%srope_type \"%s\" is not supported (default, linear, llama3 and yarn are)",
             fields.name.c_str(), kind.c_str());
    }
    rope.scaling = RopeScaling::llama3;
    rope.factor = fields.positive("factor");
    rope.low_frequency_factor = fields.positive("low_freq_factor");
    rope.high_frequency_factor = fields.positive("high_freq_factor");
    rope.original_context = fields.count("original_max_position_embeddings", kContextMax);
    if (rope.high_frequency_factor <= rope.low_frequency_factor) {
        fields.refuse("high_freq_factor", "a number above low_freq_factor");
    }
}

// Returns [count] factors of frequencies.
std::vector<float> read_factors(const Fields &fields, const char *key, uint32_t count) {
    const Json *found = fields.object.find_value(key);
    const Json::Array *listed = found != nullptr ? found->array() : nullptr;
    const std::string expected =
        "an array of " + std::to_string(count) + " numbers above 0, one for each pair that turns";
    if (listed == nullptr || listed->size() != count) {
        fields.refuse(key, expected.c_str());
    }
    std::vector<float> factors;
    for (const Json &entry : *listed) {
        const double factor = entry.number().value_or(0.0);
        if (!(factor >= 0x1p-126 && factor <= 0x1p127)) {
            fields.refuse(key, expected.c_str());
        }
        factors.push_back(static_cast<float>(factor));
    }
    return factors;
}

constexpr char kPartial[] = "partial_rotary_factor";

void refuse_partial(const Fields &fields) {
    if (fields.positive(kPartial, 1.0) != 1.0) {
        fail(Status::unsupported, "%s%s other than 1 is not supported", fields.name.c_str(),
             kPartial);
    }
}

// Returns the object that describes the RoPE of such layers, if it exists.
std::optional<Fields> rope_fields(const Fields &fields, const std::string &layer_type) {
    const char *key = rope_key(fields);
    if (key == nullptr) {
        return std::nullopt;
    }
    const Fields found = fields.child(key);
    if (found.has("full_attention") || found.has("sliding_attention")) {
        return found.has(layer_type.c_str()) ? std::optional(found.child(layer_type.c_str()))
                                             : std::nullopt;
    }
    // A flat object describes the global layers only.
    return layer_type == "full_attention" ? std::optional(found) : std::nullopt;
}

} // namespace

Rope parse_rope(const Fields &fields, const char *layer_type, const char *base_key,
                double base_fallback, Rotary rotary) {
    Rope rope;
    rope.base = fields.positive(base_key, base_fallback);
    const bool whole = rotary == Rotary::whole;
    if (whole) {
        refuse_partial(fields);
    }
    const std::optional<Fields> found = rope_fields(fields, layer_type);
    if (found.has_value()) {
        if (whole) {
            refuse_partial(*found);
        }
        rope.base = found->positive("rope_theta", rope.base);
        read_scaling(*found, rope);
    }
    return rope;
}

// The original context stands beside the RoPE's object in published files.
Rope parse_long_rope(const Fields &fields, const Config &config) {
    constexpr char kOriginal[] = "original_max_position_embeddings";
    const std::optional<Fields> found = rope_fields(fields, "full_attention");
    const std::string kind =
        found.has_value() ? found->text("rope_type", found->text("type", "")) : "";
    if (kind != "longrope" && kind != "su" && kind != "yarn") { // its first names
        return parse_rope(fields, "full_attention", "rope_theta", 10000.0, Rotary::part);
    }
    Rope rope;
    rope.base = found->positive("rope_theta", fields.positive("rope_theta", rope.base));
    rope.scaling = RopeScaling::longrope;
    rope.original_context =
        (fields.has(kOriginal) ? fields : *found).count(kOriginal, kContextMax, std::nullopt, 2);
    rope.factors = read_factors(*found, "short_factor", config.rotary() / 2);
    rope.long_factors = read_factors(*found, "long_factor", config.rotary() / 2);
    if (config.context <= rope.original_context) {
        fail(Status::unsupported,
             "%smax_position_embeddings (%u) does not exceed %s (%u), so that long_factor has no "
             "use",
             fields.name.c_str(), config.context, kOriginal, rope.original_context);
    }
    rope.amplitude = found->positive("attention_factor",
                                     long_rope_amplitude(config.context, rope.original_context));
    return rope;
}

Rope parse_proportional_rope(const Fields &fields, const Config &config, uint32_t head_dim) {
    const std::optional<Fields> found = rope_fields(fields, "full_attention");
    Rope rope;
    rope.rotary = head_dim == config.rotary() ? 0 : head_dim;
    rope.base = 1e6;
    double part = 0.25;
    if (found.has_value()) {
        const std::string kind = found->text("rope_type", "default");
        if (kind != "proportional" && kind != "default") {
            fail(Status::unsupported,
                 "%srope_type \"%s\" is not supported here (default and proportional are)",
                 found->name.c_str(), kind.c_str());
        }
        if (found->positive("factor", 1.0) != 1.0) {
            fail(Status::unsupported, "%sfactor other than 1 is not supported",
                 found->name.c_str());
        }
        rope.base = found->positive("rope_theta", rope.base);
        part = kind == "proportional" ? found->positive(kPartial, 1.0) : 1.0;
    }
    const double pairs = part * static_cast<double>(head_dim) / 2.0;
    if (!(pairs >= 1.0 && part <= 1.0)) {
        (found.has_value() ? *found : fields)
            .refuse(kPartial, ("a part, of head_dim (" + std::to_string(head_dim) +
                               "), from 2 numbers to all")
                                  .c_str());
    }
    const auto turned = static_cast<uint32_t>(pairs);
    rope.still_from = turned == head_dim / 2 ? 0 : turned;
    return rope;
}

uint32_t parse_rotary_dim(const Fields &fields, uint32_t head_dim, double fallback) {
    const std::optional<Fields> found = rope_fields(fields, "full_attention");
    const double beside = fields.positive(kPartial, fallback);
    const double factor = found.has_value() ? found->positive(kPartial, beside) : beside;
    const double turned = factor * static_cast<double>(head_dim);
    const auto rotary = turned <= static_cast<double>(head_dim) ? static_cast<uint32_t>(turned) : 0;
    if (rotary == 0 || rotary % 2 != 0) {
        (found.has_value() && found->has(kPartial) ? *found : fields)
            .refuse(kPartial, ("a factor by which an even part, 2 or more, of head_dim (" +
                               std::to_string(head_dim) + ") is turned")
                                  .c_str());
    }
    return rotary == head_dim ? 0 : rotary;
}

Rope parse_only_rope(const Fields &fields, double base_fallback) {
    const char *key = rope_key(fields);
    if (key != nullptr && fields.child(key).has("sliding_attention")) {
        fail(Status::unsupported,
             "%s%s: a rope of its own for sliding_attention is not supported in this architecture",
             fields.name.c_str(), key);
    }
    return parse_rope(fields, "full_attention", "rope_theta", base_fallback);
}

void parse_query_growth(const Fields &fields, Config &config) {
    const std::optional<Fields> found = rope_fields(fields, "full_attention");
    if (found.has_value() && found->has("llama_4_scaling_beta")) {
        config.query_growth = static_cast<float>(found->positive("llama_4_scaling_beta"));
        config.query_growth_context = found->count("original_max_position_embeddings", kContextMax);
    }
}

uint32_t rope_index(Config &config, const Rope &rope) {
    for (size_t i = 0; i < config.ropes.size(); ++i) {
        if (config.ropes[i] == rope) {
            return static_cast<uint32_t>(i);
        }
    }
    config.ropes.push_back(rope);
    return static_cast<uint32_t>(config.ropes.size() - 1);
}

} // namespace stasis
