// What C7 does to logits before tokens are chosen among: penalties, DRY and biases, its steps 0 to
// 4. Part of sampling (sampling.h); knows no probabilities.
#pragma once

#include <algorithm>
#include <cfloat>
#include <limits>
#include <span>

#include "runtime/sampling/sampling.h"

namespace stasis {

inline constexpr float kRemoved = -std::numeric_limits<float>::infinity();

// A result beyond the finite range becomes the largest finite number of its sign.
inline float finite(float x) {
    return std::clamp(x, -FLT_MAX, FLT_MAX);
}

// The row that tokens are chosen from, `logits` itself or one in `scratch`; a removed token has
// kRemoved for a logit. Arguments as those of `sample`.
std::span<const float> process_logits(std::span<const float> logits, const Sampling &sampling,
                                      std::span<const uint32_t> history, SamplingScratch &scratch);

} // namespace stasis
