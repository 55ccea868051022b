// Checks sampling settings; see sampling.h.
#include <cfloat>

#include "format/state/decimal.h"
#include "format/state/error.h"
#include "format/state/token_set.h"
#include "runtime/sampling/sampling.h"

namespace stasis {
namespace {

// The sum of fewer weights than this fits 64 bits.
constexpr uint32_t kCandidatesMax = 1U << 24;

void check_ranges(const Sampling &sampling) {
    const SamplingV2 &v2 = sampling.v2;
    struct Range {
        const char *name;
        float value, lowest, highest;
    };
    // FLT_MIN: positive. Smaller numbers are denormal, and those count as zero (C2).
    for (const Range &range : {
             Range{"temperature", sampling.temperature, 0.0F, FLT_MAX},
             Range{"top_p", sampling.top_p, FLT_MIN, 1.0F},
             Range{"min_p", sampling.min_p, 0.0F, 1.0F},
             Range{"repetition_penalty", sampling.repetition_penalty, FLT_MIN, FLT_MAX},
             Range{"frequency_penalty", sampling.frequency_penalty, -FLT_MAX, FLT_MAX},
             Range{"presence_penalty", sampling.presence_penalty, -FLT_MAX, FLT_MAX},
             Range{"typical_p", v2.typical_p, FLT_MIN, 1.0F},
             Range{"top_n_sigma", v2.top_n_sigma, 0.0F, FLT_MAX},
             Range{"xtc_probability", v2.xtc_probability, 0.0F, 1.0F},
             Range{"xtc_threshold", v2.xtc_threshold, FLT_MIN, 0.5F},
             Range{"dry_multiplier", v2.dry_multiplier, 0.0F, FLT_MAX},
             Range{"dry_base", v2.dry_base, 1.0F, FLT_MAX},
         }) {
        if (!(range.value >= range.lowest && range.value <= range.highest)) { // true for NaN too
            fail(Status::invalid_argument, "sampling: %s is %s, expected a number from %s to %s",
                 range.name, decimal(range.value).c_str(), decimal(range.lowest).c_str(),
                 decimal(range.highest).c_str());
        }
    }
    if (v2.dry_allowed_length == 0 || v2.min_keep == 0) {
        fail(Status::invalid_argument, "sampling: %s is 0, expected a number from 1 on",
             v2.min_keep == 0 ? "min_keep" : "dry_allowed_length");
    }
}

void check_biases(const Sampling &sampling, uint32_t vocabulary) {
    for (size_t i = 0; i < sampling.bias.size(); ++i) {
        const auto &[token, bias] = sampling.bias[i];
        if (token >= vocabulary) {
            fail(Status::invalid_argument,
                 "sampling: bias %zu is for token %u, expected a token below %u", i, token,
                 vocabulary);
        }
        if (i > 0 && token <= sampling.bias[i - 1].first) {
            fail(Status::invalid_argument,
                 "sampling: bias %zu is for token %u and follows token %u, expected each token "
                 "once and in ascending order",
                 i, token, sampling.bias[i - 1].first);
        }
        if (!(bias <= FLT_MAX)) {
            fail(Status::invalid_argument,
                 "sampling: bias of token %u is %s, expected a finite number or -infinity", token,
                 decimal(bias).c_str());
        }
    }
}

void check_breakers(const std::vector<uint32_t> &breakers, uint32_t vocabulary) {
    for (size_t i = 0; i < breakers.size(); ++i) {
        if (breakers[i] >= vocabulary) {
            fail(Status::invalid_argument,
                 "sampling: dry_breakers: token %u, expected a token below %u", breakers[i],
                 vocabulary);
        }
        if (i > 0 && breakers[i] <= breakers[i - 1]) {
            fail(Status::invalid_argument,
                 "sampling: dry_breakers: token %u follows token %u, expected each token once and "
                 "in ascending order",
                 breakers[i], breakers[i - 1]);
        }
    }
}

void check_constraint(const SamplingV3 &v3, uint32_t vocabulary) {
    if (const Constraint *constraint = v3.constraint.value.get()) {
        if (constraint->kind == 0 || constraint->kind > Constraint::kKindMax) {
            fail(Status::invalid_argument, "constraint: kind %u, expected 1 to %u",
                 constraint->kind, Constraint::kKindMax);
        }
        if (constraint->text.size() > Constraint::kTextMax) {
            fail(Status::unsupported, "constraint: its text has %zu bytes, of at most %zu",
                 constraint->text.size(), Constraint::kTextMax);
        }
    }
    if (const std::string *allowed = v3.allowed.value.get()) {
        const std::optional<TokenRuns> runs = decode_tokens(*allowed, vocabulary);
        if (!runs || runs->empty()) {
            fail(Status::invalid_argument, "allowed tokens: none of the %u is, expected one",
                 vocabulary);
        }
    }
}

} // namespace

void check_sampling(const Sampling &sampling, uint32_t vocabulary) {
    check_ranges(sampling);
    if (vocabulary >= kCandidatesMax) {
        fail(Status::unsupported, "sampling: a vocabulary of %u tokens, expected fewer than %u",
             vocabulary, kCandidatesMax);
    }
    check_biases(sampling, vocabulary);
    check_breakers(sampling.v2.dry_breakers, vocabulary);
    check_constraint(sampling.v3, vocabulary);
}

} // namespace stasis
