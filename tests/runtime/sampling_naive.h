// C7 restated as plainly as possible, to hold runtime/sampling/sampling.cpp against: no selection,
// no early leaving out, one pass per step over fully sorted candidates. Shares random_bits,
// coin_bits and exp_f32 only.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/kernels/math.h"
#include "runtime/sampling/sampling.h"

namespace naive {

__extension__ using Uint128 = unsigned __int128;

inline float finite(float x) {
    return x > FLT_MAX ? FLT_MAX : x < -FLT_MAX ? -FLT_MAX : x;
}

// For each place of the history, how far back it is what the history ends with; the longest for
// each token that came next, 0 for none.
inline uint32_t dry_match(uint32_t token, const stasis::SamplingV2 &v2,
                          std::span<const uint32_t> history) {
    const auto breaks = [&](uint32_t t) {
        return std::count(v2.dry_breakers.begin(), v2.dry_breakers.end(), t) > 0;
    };
    size_t longest = 0;
    for (size_t next = 1; next < history.size(); ++next) {
        size_t matched = 0;
        while (matched < next &&
               history[next - 1 - matched] == history.end()[-1 - static_cast<ptrdiff_t>(matched)] &&
               !breaks(history[next - 1 - matched])) {
            ++matched;
        }
        longest = history[next] == token ? std::max(longest, matched) : longest;
    }
    return breaks(token) ? 0 : static_cast<uint32_t>(longest);
}

inline float dry_penalty(uint32_t matched, const stasis::SamplingV2 &v2) {
    long double penalty = v2.dry_multiplier;
    for (uint32_t i = v2.dry_allowed_length; i < matched; ++i) {
        penalty *= static_cast<long double>(v2.dry_base);
    }
    return static_cast<float>(std::min<long double>(penalty, FLT_MAX));
}

inline std::span<const uint32_t> last(std::span<const uint32_t> history, uint32_t count) {
    return count == 0 || count > history.size() ? history : history.last(count);
}

// Steps 0 to 4 for one token; nothing if it is removed.
inline std::optional<float> processed(uint32_t token, float l, const stasis::Sampling &sampling,
                                      std::span<const uint32_t> history) {
    float bias = 0.0F;
    for (const auto &[biased, value] : sampling.bias) {
        bias = biased == token ? value : bias;
    }
    if (std::isinf(bias)) {
        return std::nullopt;
    }
    const auto seen = std::ranges::count(last(history, sampling.penalty_window), token);
    if (seen > 0) {
        const float r = sampling.repetition_penalty;
        l = finite(l > 0.0F ? l / r : l * r);
        const float frequency = static_cast<float>(seen) * sampling.frequency_penalty;
        l = finite(l - frequency);
        l = finite(l - sampling.presence_penalty);
    }
    const uint32_t matched = dry_match(token, sampling.v2, last(history, sampling.v2.dry_range));
    if (sampling.v2.dry_multiplier > 0 && matched >= sampling.v2.dry_allowed_length) {
        l = finite(l - dry_penalty(matched, sampling.v2));
    }
    return finite(l + bias);
}

struct Weighted {
    float logit;
    uint32_t token;
    uint64_t weight;
};
using List = std::vector<Weighted>; // in the order of C7

inline Uint128 total_of(const List &list) {
    Uint128 total = 0;
    for (const Weighted &each : list) {
        total += each.weight;
    }
    return total;
}

// ceil(total * floor(share * 2^32) / 2^32), at least 1.
inline Uint128 share_of(const List &list, float share) {
    const Uint128 product =
        total_of(list) * static_cast<uint64_t>(std::floor(std::ldexp(share, 32)));
    const Uint128 whole = product / (Uint128{1} << 32);
    return std::max<Uint128>(whole + (product % (Uint128{1} << 32) != 0 ? 1 : 0), 1);
}

// How many from the front reach a weight.
inline size_t reaching(const List &list, Uint128 weight) {
    size_t length = 0;
    for (Uint128 sum = 0; sum < weight; ++length) {
        sum += list[length].weight;
    }
    return length;
}

// Step 5, of the whole row: the standard deviation in sixteen lanes by token.
inline double deviation(const List &list) {
    const auto sum = [&](const auto &term) {
        double lane[16] = {};
        List by_token = list;
        std::sort(by_token.begin(), by_token.end(),
                  [](const auto &a, const auto &b) { return a.token < b.token; });
        for (const Weighted &each : by_token) {
            lane[each.token % 16] += term(double{each.logit});
        }
        const auto pair = [&](size_t j) { return lane[j] + lane[j + 8]; };
        const auto quad = [&](size_t j) { return pair(j) + pair(j + 4); };
        return (quad(0) + quad(2)) + (quad(1) + quad(3));
    };
    const auto n = static_cast<double>(list.size());
    const double mean = sum([](double l) { return l; }) / n;
    return std::sqrt(sum([=](double l) { return (l - mean) * (l - mean); }) / n);
}

inline void sort(List &list) {
    std::sort(list.begin(), list.end(), [](const Weighted &a, const Weighted &b) {
        return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
    });
}

// Step 8.
inline void typical(List &list, const stasis::SamplingV2 &v2, float max) {
    const auto depth = [max](const Weighted &each) {
        return static_cast<int64_t>(std::floor(std::ldexp(double{max} - double{each.logit}, 32)));
    };
    Uint128 sum = 0;
    for (const Weighted &each : list) {
        sum += Uint128{each.weight} * static_cast<uint64_t>(depth(each));
    }
    const auto mean = static_cast<int64_t>(sum / total_of(list));
    List ordered = list;
    std::stable_sort(ordered.begin(), ordered.end(), [&](const Weighted &a, const Weighted &b) {
        return std::abs(depth(a) - mean) < std::abs(depth(b) - mean);
    });
    const size_t length = reaching(ordered, share_of(ordered, v2.typical_p));
    ordered.resize(std::min(list.size(), std::max<size_t>(length, v2.min_keep)));
    list = ordered;
    sort(list);
}

// Step 9.
inline void min_p(List &list, float share, uint32_t min_keep) {
    uint64_t largest = 0;
    for (const Weighted &each : list) {
        largest = std::max(largest, each.weight);
    }
    const auto fraction = static_cast<uint64_t>(std::floor(std::ldexp(share, 40)));
    const Uint128 least = Uint128{largest} * fraction / (Uint128{1} << 40);
    List kept;
    for (const Weighted &each : list) {
        if (each.weight >= least) {
            kept.push_back(each);
        }
    }
    if (kept.size() < min_keep) {
        kept = list;
        kept.resize(std::min<size_t>(list.size(), min_keep));
    }
    list = kept;
}

// Step 11.
inline void xtc(List &list, const stasis::SamplingV2 &v2) {
    const Uint128 least = share_of(list, v2.xtc_threshold);
    List likely, rest;
    for (const Weighted &each : list) {
        (each.weight >= least ? likely : rest).push_back(each);
    }
    if (likely.size() >= 2 && 1 + rest.size() >= v2.min_keep) {
        rest.push_back(likely.back());
        sort(rest);
        list = rest;
    }
}

// Steps 5 to 7.
inline List candidates(List sorted, const stasis::Sampling &sampling) {
    if (sampling.v2.top_n_sigma > 0) {
        const double least =
            double{sorted[0].logit} - double{sampling.v2.top_n_sigma} * deviation(sorted);
        std::erase_if(sorted, [&](const Weighted &each) { return each.logit < least; });
    }
    for (Weighted &each : sorted) {
        each.logit = finite(each.logit / sampling.temperature);
    }
    sort(sorted); // division makes ties
    if (sampling.top_k > 0 && sampling.top_k < sorted.size()) {
        sorted.resize(sampling.top_k);
    }
    for (Weighted &each : sorted) {
        const float x = each.logit - sorted.front().logit;
        const double scaled = x < -80.0F ? 0.0 : std::ldexp(stasis::kernels::exp_f32(x), 40);
        each.weight = static_cast<uint64_t>(std::floor(scaled));
    }
    std::erase_if(sorted, [](const Weighted &each) { return each.weight == 0; });
    return sorted;
}

inline uint32_t sample(std::span<const float> logits, const stasis::Sampling &sampling,
                       uint64_t position, std::span<const uint32_t> history) {
    List list;
    for (uint32_t token = 0; token < logits.size(); ++token) {
        if (const auto l = processed(token, logits[token], sampling, history)) {
            list.push_back({*l, token, 0});
        }
    }
    sort(list);
    if (sampling.temperature == 0.0F) {
        return list.front().token;
    }
    list = candidates(list, sampling);
    const stasis::SamplingV2 &v2 = sampling.v2;
    if (v2.typical_p < 1) {
        typical(list, v2, list.front().logit);
    }
    min_p(list, sampling.min_p, v2.min_keep);
    if (sampling.top_p < 1) {
        const size_t length = reaching(list, share_of(list, sampling.top_p));
        list.resize(std::min(list.size(), std::max<size_t>(length, v2.min_keep)));
    }
    const double coin = std::ldexp(stasis::coin_bits(sampling.seed, position), -32); // below 1
    if (coin < std::ldexp(std::floor(std::ldexp(v2.xtc_probability, 32)), -32)) {
        xtc(list, v2);
    }
    const Uint128 random = stasis::random_bits(sampling.seed, position);
    const Uint128 draw = (total_of(list) * random) >> 64; // below 2^64 x 2^64
    return list[reaching(list, draw + 1) - 1].token;
}

} // namespace naive
