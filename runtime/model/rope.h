// RoPE tables: cosines and sines by position, in the arithmetic of NUMERICS.md, C3. Knows neither
// models nor sessions.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/config.h"

namespace stasis {

// Returns [rotary / 2] angles per position, scaling applied, of heads of which RoPE turns that many
// numbers; with the long factors, if the RoPE has them and they are asked for. Rounding must be to
// nearest.
std::vector<double> rope_frequencies(const Rope &rope, uint32_t rotary, bool long_factors = false);

// Writes the row of one position: [frequencies.size()] cosines and as many sines, each times
// `amplitude`. Products of position and frequency up to 2^40 are exact enough to be rounded once.
void rope_row(const std::vector<double> &frequencies, double amplitude, uint64_t position,
              float *cosine, float *sine);

// Returns the amplitude of a long RoPE: of `context` positions, trained on `original`, 2 at least.
double long_rope_amplitude(uint32_t context, uint32_t original);

// Returns what a query at a position is multiplied by, after RoPE (Config::query_growth).
float query_scale(const Config &config, uint64_t position);

// Returns the amplitude that YaRN gives a stretch by `factor`, with a weight that is usually 1.
// Rounding must be to nearest.
double yarn_amplitude(double factor, double weight);

} // namespace stasis
