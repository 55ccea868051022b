// Draws of the sampler, for tests of its steps.
#pragma once

#include <set>
#include <vector>

#include "runtime/kernels/environment.h"
#include "runtime/sampling/sampling.h"

namespace stasis::test {

using TokenSet = std::set<uint32_t>;

inline uint32_t draw(const std::vector<float> &logits, const Sampling &sampling,
                     uint64_t position = 0, const std::vector<uint32_t> &history = {}) {
    const kernels::FloatEnvironment environment;
    SamplingScratch scratch;
    return sample(logits, sampling, position, history, scratch);
}

// Everything drawn at positions 0 to 399. A token of a tenth of the weight is missed with a
// probability of 10^-18, and the generator is fixed, so what was found once is found always.
inline TokenSet support(const std::vector<float> &logits, const Sampling &sampling) {
    TokenSet tokens;
    for (uint64_t position = 0; position < 400; ++position) {
        tokens.insert(draw(logits, sampling, position));
    }
    return tokens;
}

} // namespace stasis::test
