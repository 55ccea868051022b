// Stasis for C++20: how tokens are drawn, and which texts may be. Included by stasis.hpp.
#pragma once

#include "stasis/error.hpp"

namespace stasis {

// A token with a natural log-probability.
struct Candidate {
    Token token = 0;
    float log_probability = 0;
    bool operator==(const Candidate &) const = default;
};

// A token whose logit is changed; -infinity forbids it.
struct Bias {
    Token token = 0;
    float added = 0;
    bool operator==(const Bias &) const = default;
};

// How the next token is drawn, as stasis_sampling explains it: 0 means off unless that says
// otherwise, so the default is greedy.
struct Sampling {
    std::uint32_t top_k = 0;
    float temperature = 0;
    float top_p = 0;
    float min_p = 0;
    float repetition_penalty = 0;
    float frequency_penalty = 0;
    float presence_penalty = 0;
    std::uint32_t penalty_window = 0;
    std::vector<Bias> bias = {}; // each token once
    std::uint64_t seed = 0;
    float typical_p = 0;
    float top_n_sigma = 0;
    float xtc_probability = 0;
    float xtc_threshold = 0;
    float dry_multiplier = 0;
    float dry_base = 0;
    std::uint32_t dry_allowed_length = 0;
    std::uint32_t dry_range = 0;
    std::uint32_t min_keep = 0;
    std::vector<Token> dry_breakers = {};
    bool operator==(const Sampling &) const = default;
};

// Which texts a reply may be: Session::set_constraint.
struct Constraint {
    std::uint32_t kind = STASIS_CONSTRAINT_NONE;
    std::string text = {};

    static Constraint none() { return {}; }
    static Constraint json() { return {STASIS_CONSTRAINT_JSON, {}}; }
    static Constraint json_schema(std::string schema) {
        return {STASIS_CONSTRAINT_JSON_SCHEMA, std::move(schema)};
    }
    static Constraint regex(std::string expression) {
        return {STASIS_CONSTRAINT_REGEX, std::move(expression)};
    }
    static Constraint grammar(std::string gbnf) {
        return {STASIS_CONSTRAINT_GRAMMAR, std::move(gbnf)};
    }
};

namespace detail {

// The C struct of settings, which points into arrays of this object.
struct RawSampling {
    explicit RawSampling(const Sampling &from) {
        for (const Bias &each : from.bias) {
            tokens.push_back(each.token);
            added.push_back(each.added);
        }
        raw.top_k = from.top_k;
        raw.temperature = from.temperature;
        raw.top_p = from.top_p;
        raw.min_p = from.min_p;
        raw.repetition_penalty = from.repetition_penalty;
        raw.frequency_penalty = from.frequency_penalty;
        raw.presence_penalty = from.presence_penalty;
        raw.penalty_window = from.penalty_window;
        raw.bias_count = static_cast<std::uint32_t>(tokens.size());
        raw.bias_tokens = tokens.data();
        raw.bias = added.data();
        raw.seed = from.seed;
        raw.typical_p = from.typical_p;
        raw.top_n_sigma = from.top_n_sigma;
        raw.xtc_probability = from.xtc_probability;
        raw.xtc_threshold = from.xtc_threshold;
        raw.dry_multiplier = from.dry_multiplier;
        raw.dry_base = from.dry_base;
        raw.dry_allowed_length = from.dry_allowed_length;
        raw.dry_range = from.dry_range;
        raw.min_keep = from.min_keep;
        raw.dry_breaker_count = static_cast<std::uint32_t>(from.dry_breakers.size());
        raw.dry_breakers = from.dry_breakers.data();
    }
    RawSampling(const RawSampling &) = delete;
    RawSampling &operator=(const RawSampling &) = delete;

    std::vector<Token> tokens;
    std::vector<float> added;
    stasis_sampling raw = sized<stasis_sampling>();
};

// Copies settings that the library returned, whose arrays are a model's.
inline Sampling sampling_of(const stasis_sampling &raw) {
    Sampling made{.top_k = raw.top_k,
                  .temperature = raw.temperature,
                  .top_p = raw.top_p,
                  .min_p = raw.min_p,
                  .repetition_penalty = raw.repetition_penalty,
                  .frequency_penalty = raw.frequency_penalty,
                  .presence_penalty = raw.presence_penalty,
                  .penalty_window = raw.penalty_window,
                  .seed = raw.seed,
                  .typical_p = raw.typical_p,
                  .top_n_sigma = raw.top_n_sigma,
                  .xtc_probability = raw.xtc_probability,
                  .xtc_threshold = raw.xtc_threshold,
                  .dry_multiplier = raw.dry_multiplier,
                  .dry_base = raw.dry_base,
                  .dry_allowed_length = raw.dry_allowed_length,
                  .dry_range = raw.dry_range,
                  .min_keep = raw.min_keep};
    for (std::uint32_t i = 0; i < raw.bias_count; ++i) {
        made.bias.push_back({raw.bias_tokens[i], raw.bias[i]});
    }
    made.dry_breakers.assign(raw.dry_breakers, raw.dry_breakers + raw.dry_breaker_count);
    return made;
}

} // namespace detail
} // namespace stasis
