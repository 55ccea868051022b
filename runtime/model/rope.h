// RoPE tables: cosines and sines by position, in the arithmetic of NUMERICS.md, C3. Knows neither
// models nor sessions.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/config.h"

namespace stasis {

// Returns [rotary / 2] angles per position, scaling applied, of heads of which RoPE turns that many
// numbers. Rounding must be to nearest.
std::vector<double> rope_frequencies(const Rope &rope, uint32_t rotary);

// Writes the row of one position: [frequencies.size()] cosines and as many sines. Products of
// position and frequency up to 2^40 are exact enough to be rounded once.
void rope_row(const std::vector<double> &frequencies, uint64_t position, float *cosine,
              float *sine);

} // namespace stasis
