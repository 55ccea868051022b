// C7 restated as plainly as possible, to hold runtime/sampling.cpp against: no selection, no early
// leaving out, one pass per step over fully sorted candidates. Shares random_bits and exp_f32 only.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/kernels/math.h"
#include "runtime/sampling.h"

namespace naive {

__extension__ using Uint128 = unsigned __int128;

inline float finite(float x) {
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x;
}

// Steps 0 to 3 for one token; nothing if it is removed.
inline std::optional<float> processed(uint32_t token, float l, const stasis::Sampling &sampling,
                                      std::span<const uint32_t> history) {
    float bias = 0.0F;
    for (const auto &[biased, value] : sampling.bias) {
        bias = biased == token ? value : bias;
    }
    if (std::isinf(bias)) {
        return std::nullopt;
    }
    const auto seen = std::count(history.begin(), history.end(), token);
    if (seen > 0) {
        const float r = sampling.repetition_penalty;
        l = finite(l > 0.0F ? l / r : l * r);
        const float frequency = static_cast<float>(seen) * sampling.frequency_penalty;
        l = finite(l - frequency);
        l = finite(l - sampling.presence_penalty);
    }
    return finite(l + bias);
}

inline uint32_t sample(std::span<const float> logits, const stasis::Sampling &sampling,
                       uint64_t position, std::span<const uint32_t> history) {
    std::vector<std::pair<float, uint32_t>> sorted; // logit, token
    for (uint32_t token = 0; token < logits.size(); ++token) {
        if (const auto l = processed(token, logits[token], sampling, history)) {
            const float t = sampling.temperature;
            sorted.emplace_back(t == 0.0F ? *l : finite(*l / t), token);
        }
    }
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto &a, const auto &b) { return a.first > b.first; });
    if (sampling.temperature == 0.0F) {
        return sorted.front().second;
    }
    if (sampling.top_k > 0 && sampling.top_k < sorted.size()) {
        sorted.resize(sampling.top_k);
    }
    std::vector<std::pair<uint64_t, uint32_t>> weighted; // weight, token
    Uint128 total = 0;
    for (const auto &[l, token] : sorted) {
        const float x = l - sorted.front().first;
        const double scaled = x < -80.0F ? 0.0 : std::ldexp(stasis::kernels::exp_f32(x), 40);
        const auto weight = static_cast<uint64_t>(std::floor(scaled));
        if (weight >= static_cast<uint64_t>(std::floor(std::ldexp(sampling.min_p, 40)))) {
            weighted.emplace_back(weight, token);
            total += weight;
        }
    }
    const auto fraction = static_cast<uint64_t>(std::floor(std::ldexp(sampling.top_p, 32)));
    Uint128 kept = 0;
    size_t length = 0;
    while (length == 0 || (kept << 32) < total * fraction) {
        kept += weighted[length++].first;
    }
    const Uint128 draw =
        (kept * stasis::random_bits(sampling.seed, position)) >> 64; // below 2^64 x 2^64
    Uint128 sum = 0;
    for (size_t i = 0; i < length; ++i) {
        sum += weighted[i].first;
        if (sum > draw) {
            return weighted[i].second;
        }
    }
    return UINT32_MAX; // cannot be: draw is below the sum
}

} // namespace naive
