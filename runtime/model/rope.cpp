// RoPE, rotary position embedding (Su et al., "RoFormer", 2021). Every line below is one step of
// NUMERICS.md (C3, "RoPE tables"); a different order of two steps changes bits.
#include "runtime/model/rope.h"

#include <cassert>

#include "runtime/kernels/math.h"

namespace stasis {

namespace {

// The scaling of Llama 3.1 (Meta, llama-models, `apply_scaling`): long waves are stretched by the
// factor, short ones kept, and those between blended by their number of turns in the original
// context.
double scale_llama3(const Rope &rope, double frequency) {
    constexpr double kTurn = 0x1.921fb54442d18p+2; // 2 pi
    const auto context = static_cast<double>(rope.original_context);
    const double wavelength = kTurn / frequency;
    if (wavelength < context / rope.high_frequency_factor) {
        return frequency;
    }
    if (wavelength > context / rope.low_frequency_factor) {
        return frequency / rope.factor;
    }
    const double blend = (context / wavelength - rope.low_frequency_factor) /
                         (rope.high_frequency_factor - rope.low_frequency_factor);
    return (1.0 - blend) * (frequency / rope.factor) + blend * frequency;
}

double scale(const Rope &rope, double frequency) {
    switch (rope.scaling) {
    case RopeScaling::none:
        return frequency;
    case RopeScaling::linear:
        return frequency / rope.factor;
    case RopeScaling::llama3:
        return scale_llama3(rope, frequency);
    }
    return frequency;
}

} // namespace

std::vector<double> rope_frequencies(const Rope &rope, uint32_t rotary) {
    assert(rotary % 2 == 0 && (rope.factors.empty() || rope.factors.size() == rotary / 2));
    std::vector<double> frequencies(rotary / 2);
    for (uint32_t i = 0; i < rotary / 2; ++i) {
        const double exponent = static_cast<double>(2 * i) / static_cast<double>(rotary);
        frequencies[i] = scale(rope, kernels::pow_f64(rope.base, -exponent));
        if (!rope.factors.empty()) {
            frequencies[i] = frequencies[i] / static_cast<double>(rope.factors[i]);
        }
    }
    return frequencies;
}

void rope_row(const std::vector<double> &frequencies, uint64_t position, float *cosine,
              float *sine) {
    for (size_t i = 0; i < frequencies.size(); ++i) {
        const double angle = static_cast<double>(position) * frequencies[i];
        cosine[i] = static_cast<float>(kernels::cos_f64(angle));
        sine[i] = static_cast<float>(kernels::sin_f64(angle));
    }
}

} // namespace stasis
