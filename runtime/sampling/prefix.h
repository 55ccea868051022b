// The order of candidates, their weights, and where a share of all weights ends (C7, steps 6 and
// 7). Knows no filters.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/kernels/table.h"
#include "runtime/sampling/sampling.h"

namespace stasis {

inline constexpr size_t kSteps = static_cast<size_t>(-kernels::kDrawFloor) * 16 + 1;

inline constexpr float kWeightOne = 0x1p40F;

// Step 7: floor(power * 2^40), `power` being exp(l - max).
inline uint64_t weight_of(float power) {
    return static_cast<uint64_t>(power * kWeightOne);
}

// Step 6.
inline bool better(const Candidate &a, const Candidate &b) {
    return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

// Steps of 1/16 below `max`, at most kSteps - 1 for what has a weight: no candidate is better than
// one of an earlier step.
inline size_t step_of(float max, float logit) {
    return static_cast<size_t>(static_cast<int>((max - logit) * 16.0F));
}

// The sums of the weights of each step.
using StepSums = std::array<uint64_t, kSteps>;

// Returns the step in which the shortest prefix ends whose weights add up to at least `weight`,
// which is in [1, all of the sums], and takes the sums of the steps before from `weight`.
inline size_t last_step(const StepSums &sums, uint64_t &weight) {
    assert(weight >= 1);
    size_t last = 0;
    while (sums[last] < weight) {
        weight -= sums[last++];
    }
    return last;
}

inline uint64_t total_weight(std::span<const Candidate> candidates) {
    uint64_t total = 0;
    for (const Candidate &candidate : candidates) {
        total += candidate.weight;
    }
    return total;
}

// Returns the last candidate of the shortest prefix of these, in the order of `before`, whose
// weights add up to at least `weight`, which is in [1, their total]; `weight` becomes what the
// prefix without it lacks. Reorders the candidates: each round halves them, and keeps the half in
// which the prefix ends.
template <typename Before>
Candidate prefix_end(std::span<Candidate> candidates, uint64_t &weight, const Before &before) {
    while (candidates.size() > 1) {
        const size_t middle = candidates.size() / 2;
        std::nth_element(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(middle),
                         candidates.end(), before);
        const uint64_t half = total_weight(candidates.first(middle));
        if (half >= weight) {
            candidates = candidates.first(middle);
        } else {
            weight -= half;
            candidates = candidates.subspan(middle);
        }
    }
    return candidates[0];
}

} // namespace stasis
