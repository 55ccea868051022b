// Clause C7 of the contract, step by step. Float operations are single IEEE f32 operations in the
// order written; a result beyond the finite range becomes the largest finite number of its sign.
//
//  0. A token with a bias of -infinity is removed: no later step sees it. If none is left: error.
//  1. Repetition penalty r, for each distinct token of the history (Keskar et al., "CTRL", 2019):
//     l = l / r where l > 0, else l * r.
//  2. Frequency penalty f, then presence penalty p, for the same tokens, seen `count` times:
//     l = l - f32(count) * f (product and difference rounded each), l = l - p.
//  3. Finite biases: l = l + bias.
//  4. Temperature 0: the answer is the first token by (l descending, token ascending), done.
//     Else l = l / temperature for every token.
//  5. Candidates in the order (l descending, token ascending); `max` is the first one's l. top_k
//     above 0 keeps the first top_k.
//  6. Weights, as integers, so that sums are exact in any order:
//     w = floor(exp_f32(l - max) * 2^40), and 0 where l - max < -28 (exp(-28) * 2^40 < 1).
//     The first candidate's weight is exactly 2^40.
//  7. min_p keeps the candidates with w >= floor(min_p * 2^40).
//  8. top_p keeps the shortest prefix whose weights add up to at least
//     ceil(total * floor(top_p * 2^32) / 2^32), and to at least 1; `total` is then that prefix's.
//     The product is exact (128 bits).
//  9. draw = high 64 bits of (random_bits(seed, position) * total), which is below total; the
//     answer is the last candidate of the shortest prefix whose weights add up to more than draw.
//
// Where this file does something else, it is because the answer cannot differ: removal (0) happens
// after 1-3, which treat each token alone; candidates of weight 0 are left out early, as no prefix
// that ends in one is the shortest; only as much is sorted as a prefix needs.
#include "runtime/sampling.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <limits>

#include "format/error.h"
#include "runtime/kernels/math.h"
#include "runtime/philox.h"

namespace stasis {
namespace {

__extension__ using Uint128 = unsigned __int128;

constexpr float kRemoved = -std::numeric_limits<float>::infinity();
constexpr float kWeightOne = 0x1p40F;
constexpr float kExponentMin = -28.0F; // below it the weight is 0
// The total of fewer weights than this fits 64 bits.
constexpr uint32_t kVocabularyMax = 1U << 24;

float finite(float x) {
    return std::clamp(x, -FLT_MAX, FLT_MAX);
}

bool better(const Candidate &a, const Candidate &b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// Steps 1 and 2. Counts are back at zero when it returns.
void penalise(std::span<float> row, const Sampling &sampling, std::span<const uint32_t> history,
              std::vector<uint32_t> &counts) {
    counts.resize(row.size());
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

// Steps 0 to 3. A removed token has kRemoved for a logit.
std::span<const float> process(std::span<const float> logits, const Sampling &sampling,
                               std::span<const uint32_t> history, SamplingScratch &scratch) {
    const bool penalised = uses_history(sampling) && !history.empty();
    if (!penalised && sampling.bias.empty()) {
        return logits;
    }
    std::vector<float> &row = scratch.logits;
    row.assign(logits.begin(), logits.end());
    if (penalised) {
        penalise(row, sampling, history, scratch.counts);
    }
    for (const auto &[token, bias] : sampling.bias) {
        row[token] = bias == kRemoved ? kRemoved : finite(row[token] + bias);
    }
    return row;
}

// Step 4: the first token by (logit descending, token ascending).
uint32_t argmax(std::span<const float> row) {
    float highest = kRemoved;
    size_t found = row.size();
    for (size_t token = 0; token < row.size(); ++token) {
        if (row[token] > highest) {
            highest = row[token];
            found = token;
        }
    }
    if (found == row.size()) {
        fail(Status::invalid_argument,
             "sampling: biases of -infinity removed all %zu tokens, expected one to be left",
             row.size());
    }
    return static_cast<uint32_t>(found);
}

// Step 5: the top_k best of the candidates to the front, the last of them last; the rest dropped.
void keep_best(std::vector<Candidate> &candidates, size_t top_k) {
    if (top_k > 0 && top_k < candidates.size()) {
        const auto last = candidates.begin() + static_cast<ptrdiff_t>(top_k - 1);
        std::nth_element(candidates.begin(), last, candidates.end(), better);
        candidates.resize(top_k);
    }
}

// Steps 4 to 7: candidates with their weights, in no order. `max` is the best one's logit.
void collect(std::span<const float> row, const Sampling &sampling, float max,
             std::vector<Candidate> &candidates) {
    const size_t top_k = sampling.top_k;
    // With top_k, a few more than that are gathered before the worst of them are dropped, and
    // from then on what is below the last one kept need not be gathered.
    const size_t gathered_max = top_k == 0 ? row.size() + 1 : 2 * top_k + 1024;
    float lowest = -FLT_MAX;
    candidates.clear();
    candidates.reserve(std::min(gathered_max, row.size()));
    for (uint32_t token = 0; token < row.size(); ++token) {
        const float l = finite(row[token] / sampling.temperature);
        if (l < lowest || l - max < kExponentMin || row[token] == kRemoved) {
            continue;
        }
        candidates.push_back({l, token, 0});
        if (candidates.size() == gathered_max) {
            keep_best(candidates, top_k);
            lowest = candidates.back().logit;
        }
    }
    keep_best(candidates, top_k);
    for (Candidate &candidate : candidates) {
        candidate.weight =
            static_cast<uint64_t>(kernels::exp_f32(candidate.logit - max) * kWeightOne);
    }
    const auto weight_min = static_cast<uint64_t>(sampling.min_p * kWeightOne);
    std::erase_if(candidates, [&](const Candidate &c) { return c.weight < weight_min; });
}

uint64_t total_weight(std::span<const Candidate> candidates) {
    uint64_t total = 0;
    for (const Candidate &candidate : candidates) {
        total += candidate.weight;
    }
    return total;
}

// The last candidate of the shortest prefix, in the order of `better`, whose weights add up to at
// least `weight`, which lies in [1, total]. Reorders the candidates. Steps of 1/16 below `max`
// follow the same order, so the sums of whole steps tell in which one the prefix ends; there the
// search goes on by halves, looking into one half only.
Candidate prefix_end(std::span<Candidate> candidates, float max, uint64_t weight) {
    const auto step = [max](const Candidate &c) {
        return static_cast<size_t>((max - c.logit) * 16.0F);
    };
    std::array<uint64_t, static_cast<size_t>(-kExponentMin) * 16 + 1> sums{};
    for (const Candidate &candidate : candidates) {
        sums[step(candidate)] += candidate.weight;
    }
    size_t last = 0;
    while (sums[last] < weight) {
        weight -= sums[last++];
    }
    const auto begin = candidates.begin();
    auto end = std::partition(begin, candidates.end(),
                              [&](const Candidate &c) { return step(c) == last; });
    auto from = begin; // the prefix ends in [from, end)
    while (end - from > 1) {
        const auto middle = from + (end - from) / 2;
        std::nth_element(from, middle, end, better);
        const uint64_t half = total_weight({from, middle});
        if (half >= weight) {
            end = middle;
        } else {
            weight -= half;
            from = middle;
        }
    }
    return *from;
}

// Steps 8 and 9.
uint32_t draw(std::span<Candidate> candidates, float max, float top_p, uint64_t random) {
    uint64_t total = total_weight(candidates);
    if (top_p < 1.0F) {
        const auto fraction = static_cast<uint64_t>(top_p * 0x1p32F);
        const Uint128 product = Uint128{total} * fraction + UINT32_MAX;
        const auto share = static_cast<uint64_t>(product >> 32);
        const Candidate last = prefix_end(candidates, max, std::max<uint64_t>(share, 1));
        total = 0;
        for (const Candidate &candidate : candidates) {
            total += better(last, candidate) ? 0 : candidate.weight;
        }
    }
    const Uint128 product = Uint128{random} * total;
    // Below the total of what top_p kept, so the prefix ends among those.
    return prefix_end(candidates, max, static_cast<uint64_t>(product >> 64) + 1).token;
}

} // namespace

uint64_t random_bits(uint64_t seed, uint64_t position) {
    const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
    const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
    const std::array<uint32_t, 4> block =
        philox4x32({low(position), high(position), 0, 0}, {low(seed), high(seed)});
    return uint64_t{block[1]} << 32 | block[0];
}

void check_sampling(const Sampling &sampling, uint32_t vocabulary) {
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
         }) {
        if (!(range.value >= range.lowest && range.value <= range.highest)) { // true for NaN too
            fail(Status::invalid_argument, "sampling: %s is %g, expected a number from %g to %g",
                 range.name, range.value, range.lowest, range.highest);
        }
    }
    if (vocabulary >= kVocabularyMax) {
        fail(Status::unsupported, "sampling: a vocabulary of %u tokens, expected fewer than %u",
             vocabulary, kVocabularyMax);
    }
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
                 "sampling: bias of token %u is %g, expected a finite number or -infinity", token,
                 bias);
        }
    }
}

bool uses_history(const Sampling &sampling) {
    return sampling.repetition_penalty != 1.0F || sampling.frequency_penalty != 0.0F ||
           sampling.presence_penalty != 0.0F;
}

uint32_t sample(std::span<const float> logits, const Sampling &sampling, uint64_t position,
                std::span<const uint32_t> history, SamplingScratch &scratch) {
    const std::span<const float> row = process(logits, sampling, history, scratch);
    if (sampling.temperature == 0.0F) {
        return argmax(row);
    }
    // Division by a positive number keeps the order, so the best token stays at the maximum.
    const float max = finite(row[argmax(row)] / sampling.temperature);
    collect(row, sampling, max, scratch.candidates);
    return draw(scratch.candidates, max, sampling.top_p, random_bits(sampling.seed, position));
}

std::vector<std::pair<uint32_t, float>> best(std::span<const float> logits, size_t n) {
    const auto better = [](const auto &a, const auto &b) {
        return a.second > b.second || (a.second == b.second && a.first < b.first);
    };
    std::vector<std::pair<uint32_t, float>> tokens; // a heap, the worst in front
    tokens.reserve(std::min(n, logits.size()));
    for (uint32_t token = 0; token < logits.size() && n > 0; ++token) {
        const std::pair<uint32_t, float> next{token, logits[token]};
        if (tokens.size() == n && !better(next, tokens.front())) {
            continue; // nearly always
        }
        if (tokens.size() == n) {
            std::pop_heap(tokens.begin(), tokens.end(), better);
            tokens.pop_back();
        }
        tokens.push_back(next);
        std::push_heap(tokens.begin(), tokens.end(), better);
    }
    std::sort_heap(tokens.begin(), tokens.end(), better);
    return tokens;
}

double log_sum_exp(std::span<const float> logits) {
    const double max = *std::max_element(logits.begin(), logits.end());
    std::array<double, 16> lanes{}; // C4: lane j takes the elements i with i mod 16 = j
    for (size_t i = 0; i < logits.size(); ++i) {
        lanes[i % 16] += kernels::exp_f64(static_cast<double>(logits[i]) - max);
    }
    for (size_t width = 8; width > 0; width /= 2) {
        for (size_t j = 0; j < width; ++j) {
            lanes[j] += lanes[j + width];
        }
    }
    return max + kernels::log_f64(lanes[0]);
}

} // namespace stasis
