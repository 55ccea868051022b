// Penalties, DRY and biases; see penalties.h. The steps are numbered as in sampling.cpp. DRY
// ("don't repeat yourself") is by P. E. Weidmann (pull request 5677 of text-generation-webui,
// 2024), with llama.cpp's defaults. Matches are found by the Z algorithm (Gusfield, "Algorithms on
// Strings, Trees, and Sequences", 1997, section 1.4) over the history read backwards, so that the
// time does not depend on repetitions.
#include "runtime/sampling/penalties.h"

#include <algorithm>
#include <cfloat>

#include "runtime/kernels/math.h"

namespace stasis {
namespace {

constexpr size_t kMatchesStep = 64;    // capacity of matches grows in these steps
constexpr double kExponentMax = 700.0; // of pow_f64; FLT_MAX is far smaller

bool penalises(const Sampling &sampling) {
    return sampling.repetition_penalty != 1.0F || sampling.frequency_penalty != 0.0F ||
           sampling.presence_penalty != 0.0F;
}

bool repels(const SamplingV2 &v2) {
    return v2.dry_multiplier > 0.0F;
}

// Returns how many of `length` tokens a window covers; 0: all.
uint64_t reach(uint32_t window, uint64_t length) {
    return window == 0 ? length : std::min<uint64_t>(length, window);
}

std::span<const uint32_t> last_of(std::span<const uint32_t> history, uint32_t window) {
    return history.last(static_cast<size_t>(reach(window, history.size())));
}

// Steps 1 and 2. All counts are zero again when it returns.
void penalise(std::span<float> row, const Sampling &sampling, std::span<const uint32_t> history,
              std::span<uint32_t> counts) {
    for (const uint32_t token : history) {
        ++counts[token];
    }
    for (const uint32_t token : history) {
        if (counts[token] == 0) {
            continue;
        }
        float l = row[token];
        l = finite(l > 0.0F ? l / sampling.repetition_penalty : l * sampling.repetition_penalty);
        l = finite(l - static_cast<float>(counts[token]) * sampling.frequency_penalty);
        row[token] = finite(l - sampling.presence_penalty);
        counts[token] = 0;
    }
}

// Returns the penalty of a token that would extend a match of `matched` tokens.
float dry_penalty(const SamplingV2 &v2, uint32_t matched) {
    const auto exponent = static_cast<double>(matched - v2.dry_allowed_length);
    const auto base = static_cast<double>(v2.dry_base);
    if (exponent * kernels::log_f64(base) > kExponentMax) {
        return FLT_MAX;
    }
    const double penalty =
        static_cast<double>(v2.dry_multiplier) * kernels::pow_f64(base, exponent);
    return static_cast<float>(std::min(penalty, static_cast<double>(FLT_MAX)));
}

// Stores for each i from 1 on how many tokens before the last i equal the end of the history.
void find_matches(std::span<const uint32_t> history, std::vector<uint32_t> &matches) {
    const auto back = [&](size_t i) { return history[history.size() - 1 - i]; };
    matches.reserve((history.size() / kMatchesStep + 1) * kMatchesStep);
    matches.assign(history.size(), 0);
    size_t left = 0, right = 0; // the match that reaches farthest
    for (size_t i = 1; i < history.size(); ++i) {
        // The farthest match covers i: a known match gives a lower bound of the length.
        size_t length = i < right ? std::min<size_t>(right - i, matches[i - left]) : 0;
        while (i + length < history.size() && back(length) == back(i + length)) {
            ++length;
        }
        if (i + length > right) {
            left = i;
            right = i + length;
        }
        matches[i] = static_cast<uint32_t>(length);
    }
}

// Step 3. All counts are zero again when it returns.
void repel(std::span<float> row, const SamplingV2 &v2, std::span<const uint32_t> history,
           SamplingScratch &scratch) {
    const auto breaks = [&](uint32_t token) {
        return std::binary_search(v2.dry_breakers.begin(), v2.dry_breakers.end(), token);
    };
    const auto back = [&](size_t i) { return history[history.size() - 1 - i]; };
    size_t unbroken = 0; // tokens after the last breaker; no match is longer
    while (unbroken < history.size() && !breaks(back(unbroken))) {
        ++unbroken;
    }
    if (unbroken < v2.dry_allowed_length) {
        return;
    }

    // The longest match before each token that followed one.
    find_matches(history, scratch.matches);
    std::vector<uint32_t> &longest = scratch.counts;
    for (size_t i = 1; i < history.size(); ++i) {
        const uint32_t token = back(i - 1); // the token after the match
        const auto matched = static_cast<uint32_t>(std::min<size_t>(scratch.matches[i], unbroken));
        if (matched >= v2.dry_allowed_length && !breaks(token)) {
            longest[token] = std::max(longest[token], matched);
        }
    }
    // Each token is penalised once, by its longest match.
    for (const uint32_t token : history) {
        if (longest[token] > 0) {
            row[token] = finite(row[token] - dry_penalty(v2, longest[token]));
            longest[token] = 0;
        }
    }
}

} // namespace

uint64_t history_length(const Sampling &sampling, uint64_t position) {
    const uint64_t penalties = penalises(sampling) ? reach(sampling.penalty_window, position) : 0;
    const uint64_t dry = repels(sampling.v2) ? reach(sampling.v2.dry_range, position) : 0;
    return std::max(penalties, dry);
}

std::span<const float> process_logits(std::span<const float> logits, const Sampling &sampling,
                                      std::span<const uint32_t> history,
                                      std::span<const uint64_t> allowed, SamplingScratch &scratch) {
    if (history_length(sampling, history.size()) == 0 && sampling.bias.empty() && allowed.empty()) {
        return logits;
    }
    std::vector<float> &row = scratch.logits;
    row.assign(logits.begin(), logits.end());
    scratch.counts.resize(row.size());
    if (penalises(sampling)) {
        penalise(row, sampling, last_of(history, sampling.penalty_window), scratch.counts);
    }
    if (repels(sampling.v2)) {
        repel(row, sampling.v2, last_of(history, sampling.v2.dry_range), scratch);
    }
    for (const auto &[token, bias] : sampling.bias) {
        row[token] = bias == kRemoved ? kRemoved : finite(row[token] + bias);
    }
    for (size_t token = 0; !allowed.empty() && token < row.size(); ++token) {
        row[token] = (allowed[token / 64] >> (token % 64) & 1U) != 0 ? row[token] : kRemoved;
    }
    return row;
}

} // namespace stasis
