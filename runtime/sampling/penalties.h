// Steps 0 to 4 of C7, which change logits before a token is chosen: penalties, DRY and biases. Part
// of sampling (sampling.h); knows no probabilities.
#pragma once

#include <algorithm>
#include <cfloat>
#include <limits>
#include <span>

#include "runtime/sampling/sampling.h"

namespace stasis {

inline constexpr float kRemoved = -std::numeric_limits<float>::infinity();

// Returns x; beyond the finite range, the largest finite number of its sign.
inline float finite(float x) {
    return std::clamp(x, -FLT_MAX, FLT_MAX);
}

// Returns the row that tokens are chosen from: `logits` itself, or a row in `scratch`. The logit of
// a removed token is kRemoved. The arguments are those of `sample`.
std::span<const float> process_logits(std::span<const float> logits, const Sampling &sampling,
                                      std::span<const uint32_t> history,
                                      std::span<const uint64_t> allowed, SamplingScratch &scratch);

} // namespace stasis
