// RoPE, rotary position embedding (Su et al., "RoFormer", 2021). Every line below is one step of
// NUMERICS.md (C3, "RoPE tables"); a different order of two steps changes bits.
#include "runtime/model/rope.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "runtime/kernels/math.h"

namespace stasis {

namespace {

constexpr double kTurn = 0x1.921fb54442d18p+2; // 2 pi

// The scaling of Llama 3.1 (Meta, llama-models, `apply_scaling`): long waves are stretched by the
// factor, short ones kept, and those between blended by their number of turns in the original
// context.
double scale_llama3(const Rope &rope, double frequency) {
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

// YaRN (Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023):
// pairs that turn often in the original context are kept, slow ones stretched by the factor, and
// those between blended by their index. Bounds as in transformers, modeling_rope_utils.py,
// _compute_yarn_parameters.
void scale_yarn(const Rope &rope, uint32_t rotary, std::vector<double> &frequencies) {
    const auto pair_of = [&](double turns) {
        const double context = static_cast<double>(rope.original_context) / (turns * kTurn);
        return static_cast<double>(rotary) * kernels::log_f64(context) /
               (2.0 * kernels::log_f64(rope.base));
    };
    double low = pair_of(rope.turns_fast), high = pair_of(rope.turns_slow);
    if (rope.whole_bounds) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(rotary - 1));
    if (low == high) {
        high = high + 0.001; // no division by zero
    }
    for (size_t i = 0; i < frequencies.size(); ++i) {
        const double ramp = (static_cast<double>(i) - low) / (high - low);
        const double blend = std::min(std::max(ramp, 0.0), 1.0);
        frequencies[i] = (frequencies[i] / rope.factor) * blend + frequencies[i] * (1.0 - blend);
    }
}

// The rules that look at one frequency alone.
double scale(const Rope &rope, double frequency) {
    switch (rope.scaling) {
    case RopeScaling::none:
    case RopeScaling::yarn:
    case RopeScaling::longrope:
        return frequency;
    case RopeScaling::linear:
        return frequency / rope.factor;
    case RopeScaling::llama3:
        return scale_llama3(rope, frequency);
    case RopeScaling::still:
        return 0.0;
    }
    return frequency;
}

} // namespace

std::vector<double> rope_frequencies(const Rope &rope, uint32_t rotary, bool long_factors) {
    const std::vector<float> &factors =
        long_factors && !rope.long_factors.empty() ? rope.long_factors : rope.factors;
    assert(rotary % 2 == 0 && (factors.empty() || factors.size() == rotary / 2));
    std::vector<double> frequencies(rotary / 2);
    for (uint32_t i = 0; i < rotary / 2; ++i) {
        const double exponent = static_cast<double>(2 * i) / static_cast<double>(rotary);
        frequencies[i] = scale(rope, kernels::pow_f64(rope.base, -exponent));
    }
    if (rope.scaling == RopeScaling::yarn) {
        scale_yarn(rope, rotary, frequencies);
    }
    for (size_t i = 0; i < factors.size(); ++i) {
        frequencies[i] = frequencies[i] / static_cast<double>(factors[i]);
    }
    for (size_t i = rope.still_from; rope.still_from != 0 && i < frequencies.size(); ++i) {
        frequencies[i] = 0.0;
    }
    return frequencies;
}

void rope_row(const std::vector<double> &frequencies, double amplitude, uint64_t position,
              float *cosine, float *sine) {
    for (size_t i = 0; i < frequencies.size(); ++i) {
        const double angle = static_cast<double>(position) * frequencies[i];
        cosine[i] = static_cast<float>(kernels::cos_f64(angle) * amplitude);
        sine[i] = static_cast<float>(kernels::sin_f64(angle) * amplitude);
    }
}

// Ding et al., "LongRoPE", 2024; transformers, modeling_rope_utils.py,
// _compute_longrope_parameters.
double long_rope_amplitude(uint32_t context, uint32_t original) {
    const double factor = static_cast<double>(context) / static_cast<double>(original);
    return factor <= 1.0 ? 1.0
                         : std::sqrt(1.0 + kernels::log_f64(factor) /
                                               kernels::log_f64(static_cast<double>(original)));
}

float query_scale(const Config &config, uint64_t position) {
    if (config.query_growth == 0.0F) {
        return 1.0F;
    }
    const auto stretches = static_cast<double>(1 + position / config.query_growth_context);
    const auto growth = static_cast<double>(config.query_growth);
    return static_cast<float>(1.0 + growth * kernels::log_f64(stretches));
}

double yarn_amplitude(double factor, double weight) {
    return factor <= 1.0 ? 1.0 : (0.1 * weight) * kernels::log_f64(factor) + 1.0;
}

} // namespace stasis
