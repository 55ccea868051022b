// Clause C7 of the contract, step by step. Float operations are single IEEE f32 operations in the
// order written; a result beyond the finite range becomes the largest finite number of its sign.
// Steps marked * were added in version 2 and are off by default.
//
//  0. A token with a bias of -infinity is removed: no later step sees it; and so is (since version
//     3) one that the constraint or the host does not allow. If none is left: error.
//  1. Repetition penalty r, for each distinct token of the history (Keskar et al., "CTRL", 2019):
//     l = l / r where l > 0, else l * r.
//  2. Frequency penalty f, then presence penalty p, for the same tokens, seen `count` times:
//     l = l - f32(count) * f (product and difference rounded each), l = l - p.
//  3* DRY: a match is a run of tokens in the history that its end repeats, without breakers. For a
//     token that followed one, no breaker itself, the longest being of n >= allowed_length tokens:
//     l = l - f32(multiplier * base^(n - allowed_length)), in f64; FLT_MAX at most.
//  4. Finite biases: l = l + bias.
//  5. Temperature 0: the answer is the first token by (l descending, token ascending), done.
//     * top-n-sigma (Tang et al., "Top-n-sigma: Not All Logits Are You Need", 2024):
//     tokens with l < max l - n * sigma are removed, sigma being the standard deviation of all l.
//     Then l = l / temperature for every token.
//  6. Candidates in the order (l descending, token ascending); `max` is the first one's l. top_k
//     above 0 keeps the first top_k.
//  7. Weights, as integers, so that sums are exact in any order:
//     w = floor(exp_f32(l - max) * 2^40), and 0 where l - max < -28 (exp(-28) * 2^40 < 1).
//     The first candidate's weight is exactly 2^40. Candidates of weight 0 are left out.
//  8* typical_p (Meister et al., "Locally Typical Sampling", TACL 2023) keeps the tokens
//     whose information is nearest to the entropy. With d = floor((max - l) * 2^32) and
//     mean = floor(sum(w * d) / sum(w)), in integers, information less entropy is d - mean: the
//     shortest prefix by (|d - mean| ascending, order of 6) that has the share typical_p.
//  9. min_p keeps the candidates with w >= floor(largest w * floor(min_p * 2^40) / 2^40).
// 10. top_p keeps the shortest prefix that has the share top_p.
// 11* XTC, "exclude top choices" (P. E. Weidmann, text-generation-webui, pull request 6335, 2024):
//     if coin_bits(seed, position) < floor(probability * 2^32), then of the candidates whose w is
//     at least the share xtc_threshold all but the last go, unless fewer than min_keep were left.
// 12. draw = high 64 bits of (random_bits(seed, position) * total), which is below total; the
//     answer is the last candidate of the shortest prefix whose weights add up to more than draw.
//
// The share x of candidates is max(1, ceil(total * floor(x * 2^32) / 2^32)), `total` being the sum
// of their weights and the product exact (128 bits). Where 8, 9 or 10 would keep fewer than
// min_keep, they keep the first min_keep of their order, or all.
//
// The code departs from these steps only if the result cannot differ: removal (0) happens after
// 1-4, which treat each token alone; only as much is sorted as a prefix needs.
#include "runtime/sampling/sampling.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cfloat>
#include <cmath>

#include "format/state/error.h"
#include "runtime/kernels/table.h"
#include "runtime/sampling/lanes.h"
#include "runtime/sampling/penalties.h"
#include "runtime/sampling/philox.h"
#include "runtime/sampling/prefix.h"
#include "runtime/sampling/ranking.h"

namespace stasis {
namespace {

__extension__ using Uint128 = unsigned __int128;

constexpr uint64_t kWeightMax = uint64_t{1} << 40; // of the first candidate

// Step 5: the first token by (logit descending, token ascending).
uint32_t argmax(const kernels::Table &table, std::span<const float> row, bool constrained) {
    const size_t found = table.first_largest(row.data(), row.size());
    if (row[found] == kRemoved) {
        fail(constrained ? Status::no_token : Status::invalid_argument,
             "sampling: biases of -infinity removed all %s%zu tokens, expected one to be left",
             constrained ? "that the constraint allows of " : "", row.size());
    }
    return static_cast<uint32_t>(found);
}

// Step 5: returns the standard deviation. Lane j has the tokens whose id mod 16 is j.
double deviation(std::span<const float> row) {
    Lanes lanes{};
    size_t count = 0;
    for (size_t token = 0; token < row.size(); ++token) {
        if (row[token] != kRemoved) {
            lanes[token % 16] += static_cast<double>(row[token]);
            ++count;
        }
    }
    const double mean = sum_of(lanes) / static_cast<double>(count);
    lanes = {};
    for (size_t token = 0; token < row.size(); ++token) {
        if (row[token] != kRemoved) {
            const double difference = static_cast<double>(row[token]) - mean;
            lanes[token % 16] += difference * difference;
        }
    }
    return std::sqrt(sum_of(lanes) / static_cast<double>(count));
}

// Step 5: returns the row without the logits too far below its best one.
std::span<const float> remove_below(std::span<const float> row, float best, float n,
                                    std::vector<float> &storage) {
    const double least = static_cast<double>(best) - static_cast<double>(n) * deviation(row);
    if (row.data() != storage.data()) {
        storage.assign(row.begin(), row.end());
    }
    for (float &logit : storage) {
        logit = static_cast<double>(logit) < least ? kRemoved : logit;
    }
    return storage;
}

// Step 6: moves the top_k best candidates to the front, the worst of them last, and drops the rest.
void keep_best(std::vector<Candidate> &candidates, size_t top_k) {
    if (top_k > 0 && top_k < candidates.size()) {
        const auto last = candidates.begin() + static_cast<ptrdiff_t>(top_k - 1);
        std::nth_element(candidates.begin(), last, candidates.end(), better);
        candidates.resize(top_k);
    }
}

// Steps 6 and 7: collects candidates with their weights, in no order.
void collect(size_t top_k, SamplingScratch &scratch) {
    std::vector<Candidate> &candidates = scratch.candidates;
    const std::vector<float> &scaled = scratch.scaled, &powers = scratch.powers;
    // With top_k, a few more candidates are gathered before the worst of them are dropped. From
    // then on, logits below the last one kept are not gathered.
    const size_t gathered_max = top_k == 0 ? scaled.size() + 1 : 2 * top_k + 1024;
    float lowest = -FLT_MAX;
    candidates.clear();
    candidates.reserve(std::min(gathered_max, scaled.size()));
    for (uint32_t token = 0; token < scaled.size(); ++token) {
        if (scaled[token] < lowest) {
            continue;
        }
        const uint64_t weight = weight_of(powers[token]);
        if (weight == 0) {
            continue;
        }
        candidates.push_back({scaled[token], token, weight});
        if (candidates.size() == gathered_max) {
            keep_best(candidates, top_k);
            lowest = candidates.back().logit;
        }
    }
    keep_best(candidates, top_k);
}

uint64_t largest_weight(std::span<const Candidate> candidates) {
    uint64_t largest = 0;
    for (const Candidate &candidate : candidates) {
        largest = std::max(largest, candidate.weight);
    }
    return largest;
}

// Returns a share of a total, at least 1.
uint64_t share_of(uint64_t total, float share) {
    const auto fraction = static_cast<uint64_t>(share * 0x1p32F);
    const Uint128 product = Uint128{total} * fraction + UINT32_MAX;
    return std::max<uint64_t>(static_cast<uint64_t>(product >> 32), 1);
}

// Returns the last candidate of the shortest prefix, in the order of `before`, whose weights add up
// to at least `weight`, which is in [1, total]. Reorders the candidates. `step`, below kSteps,
// never falls in that order, so the sums of whole steps determine the step in which the prefix
// ends.
template <typename Step, typename Before>
Candidate prefix_end(std::vector<Candidate> &candidates, uint64_t weight, const Step &step,
                     const Before &before) {
    StepSums sums{};
    for (const Candidate &candidate : candidates) {
        sums[step(candidate)] += candidate.weight;
    }
    const size_t last = last_step(sums, weight);
    const auto end = std::partition(candidates.begin(), candidates.end(),
                                    [&](const Candidate &c) { return step(c) == last; });
    return prefix_end(std::span<Candidate>(candidates.begin(), end), weight, before);
}

// The same in the order of `better`, by steps of 1/16 below `max`.
Candidate prefix_end(std::vector<Candidate> &candidates, float max, uint64_t weight) {
    const auto step = [max](const Candidate &c) { return step_of(max, c.logit); };
    return prefix_end(candidates, weight, step, better);
}

// Keeps the first `count` candidates in the order of `before`, sorted.
template <typename Before>
void keep_first(std::vector<Candidate> &candidates, size_t count, const Before &before) {
    count = std::min(count, candidates.size());
    std::partial_sort(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(count),
                      candidates.end(), before);
    candidates.resize(count);
}

// Keeps the candidates up to `last` in the order of `before`, but no fewer than min_keep.
template <typename Before>
void keep_to(std::vector<Candidate> &candidates, const Candidate &last, uint32_t min_keep,
             const Before &before) {
    const auto falls = [&](const Candidate &c) { return before(last, c); };
    if (min_keep == 1 || candidates.size() - static_cast<size_t>(std::count_if(
                                                 candidates.begin(), candidates.end(), falls)) >=
                             min_keep) {
        std::erase_if(candidates, falls);
        return;
    }
    keep_first(candidates, min_keep, before);
}

// Step 8: keeps the typical candidates.
void keep_typical(std::vector<Candidate> &candidates, float max, const SamplingV2 &v2) {
    const auto below = [max](const Candidate &c) {
        return static_cast<uint64_t>((max - c.logit) * 0x1p32F);
    };
    Uint128 sum = 0;
    for (const Candidate &candidate : candidates) {
        sum += Uint128{candidate.weight} * below(candidate);
    }
    const uint64_t total = total_weight(candidates);
    const auto mean = static_cast<uint64_t>(sum / total);
    const auto distance = [&](const Candidate &c) {
        return below(c) > mean ? below(c) - mean : mean - below(c);
    };
    const auto before = [&](const Candidate &a, const Candidate &b) {
        return distance(a) < distance(b) || (distance(a) == distance(b) && better(a, b));
    };
    const auto step = [&](const Candidate &c) { return distance(c) >> 28; }; // steps of 1/16
    const Candidate reached = prefix_end(candidates, share_of(total, v2.typical_p), step, before);
    keep_to(candidates, reached, v2.min_keep, before);
}

// Step 9: the least weight that min_p keeps. `largest` is the largest weight.
uint64_t least_weight(uint64_t largest, float min_p) {
    const Uint128 product = Uint128{largest} * static_cast<uint64_t>(min_p * kWeightOne);
    return static_cast<uint64_t>(product >> 40);
}

// Step 9: keeps the candidates above min_p.
void keep_min_p(std::vector<Candidate> &candidates, uint64_t largest, float min_p,
                uint32_t min_keep) {
    const uint64_t least = least_weight(largest, min_p);
    const auto falls = [least](const Candidate &c) { return c.weight < least; };
    if (min_keep == 1 || candidates.size() - static_cast<size_t>(std::count_if(
                                                 candidates.begin(), candidates.end(), falls)) >=
                             min_keep) {
        std::erase_if(candidates, falls);
        return;
    }
    keep_first(candidates, min_keep, better);
}

// Step 10: keeps the candidates within top_p.
void keep_top_p(std::vector<Candidate> &candidates, float max, float top_p, uint32_t min_keep) {
    const Candidate reached =
        prefix_end(candidates, max, share_of(total_weight(candidates), top_p));
    keep_to(candidates, reached, min_keep, better);
}

// Step 11, if the coin falls: removes all but the last of the candidates that reach the threshold.
void exclude_top(std::vector<Candidate> &candidates, const SamplingV2 &v2) {
    const uint64_t least = share_of(total_weight(candidates), v2.xtc_threshold);
    size_t reaching = 0;
    Candidate last{};
    for (const Candidate &candidate : candidates) {
        if (candidate.weight >= least) {
            last = reaching == 0 || better(last, candidate) ? candidate : last;
            ++reaching;
        }
    }
    if (reaching > 1 && candidates.size() - (reaching - 1) >= v2.min_keep) {
        std::erase_if(candidates,
                      [&](const Candidate &c) { return c.weight >= least && better(c, last); });
    }
}

// Reports whether XTC applies at a position.
bool coin_falls(const Sampling &sampling, uint64_t position) {
    const float probability = sampling.v2.xtc_probability;
    return probability > 0.0F &&
           coin_bits(sampling.seed, position) < static_cast<uint64_t>(probability * 0x1p32F);
}

// Step 12: the weight that the candidates up to the drawn one reach.
uint64_t reached_by(uint64_t random, uint64_t total) {
    return static_cast<uint64_t>(Uint128{random} * total >> 64) + 1;
}

// Steps 6 to 12 for settings that need no list of the candidates.
uint32_t draw_ranked(const Sampling &sampling, float max, uint64_t random,
                     SamplingScratch &scratch) {
    const uint64_t least = least_weight(kWeightMax, sampling.min_p);
    Ranking ranking(scratch, max, std::max<uint64_t>(least, 1));
    uint64_t total = ranking.total();
    if (sampling.top_p < 1.0F) {
        total = ranking.prefix(share_of(total, sampling.top_p)).weights;
    }
    return ranking.prefix(reached_by(random, total)).token;
}

// Returns the random block of a position and a stream: stream 0 for draws, 1 for the coin of XTC.
std::array<uint32_t, 4> random_block(uint64_t seed, uint64_t position, uint32_t stream) {
    const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
    const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
    return philox4x32({low(position), high(position), stream, 0}, {low(seed), high(seed)});
}

} // namespace

uint64_t random_bits(uint64_t seed, uint64_t position) {
    const std::array<uint32_t, 4> block = random_block(seed, position, 0);
    return uint64_t{block[1]} << 32 | block[0];
}

uint32_t coin_bits(uint64_t seed, uint64_t position) {
    return random_block(seed, position, 1)[0];
}

uint32_t sample(std::span<const float> logits, const Sampling &sampling, uint64_t position,
                std::span<const uint32_t> history, SamplingScratch &scratch,
                std::span<const uint64_t> allowed) {
    std::span<const float> row = process_logits(logits, sampling, history, allowed, scratch);

    // Step 5.
    const uint32_t best = argmax(*scratch.kernels, row, !allowed.empty());
    if (sampling.temperature == 0.0F) {
        return best;
    }
    const SamplingV2 &v2 = sampling.v2;
    if (v2.top_n_sigma > 0.0F) {
        row = remove_below(row, row[best], v2.top_n_sigma, scratch.logits);
    }
    // Division by a positive number keeps the order, so the best token keeps the maximum.
    const float max = finite(row[best] / sampling.temperature);

    // Steps 6 to 12.
    scratch.scaled.resize(row.size());
    scratch.powers.resize(row.size());
    scratch.kernels->draw_powers(row.data(), row.size(), sampling.temperature, max,
                                 scratch.scaled.data(), scratch.powers.data());
    const uint64_t random = random_bits(sampling.seed, position);
    const bool coin = coin_falls(sampling, position);
    if (sampling.top_k == 0 && v2.typical_p == 1.0F && v2.min_keep == 1 && !coin) {
        return draw_ranked(sampling, max, random, scratch);
    }
    std::vector<Candidate> &candidates = scratch.candidates;
    collect(sampling.top_k, scratch);
    uint64_t largest = kWeightMax;
    if (v2.typical_p < 1.0F) {
        keep_typical(candidates, max, v2);
        largest = largest_weight(candidates);
    }
    if (sampling.min_p > 0.0F) {
        keep_min_p(candidates, largest, sampling.min_p, v2.min_keep);
    }
    if (sampling.top_p < 1.0F) {
        keep_top_p(candidates, max, sampling.top_p, v2.min_keep);
    }
    if (coin) {
        exclude_top(candidates, v2);
    }
    return prefix_end(candidates, max, reached_by(random, total_weight(candidates))).token;
}

} // namespace stasis
