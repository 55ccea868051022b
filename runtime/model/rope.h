// Tables of rotary position embedding: cosines and sines by position, in the arithmetic of
// NUMERICS.md, C3. Built for the positions in use; knows neither models nor sessions.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/model/config.h"

namespace stasis {

// [head_dim / 2] angle per position, scaling applied. Expects round to nearest.
std::vector<double> rope_frequencies(const Rope &rope, uint32_t head_dim);

// Writes the row of one position: [frequencies.size()] cosines and as many sines. Positions times
// frequencies up to 2^40 are exact enough to be rounded once.
void rope_row(const std::vector<double> &frequencies, uint64_t position, float *cosine,
              float *sine);

} // namespace stasis
