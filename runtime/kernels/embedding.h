// The vector of a text from its final hidden states (C13), in double precision on the host,
// whatever computed these. Knows no models and no texts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis::kernels {

// Adds rows of final hidden states (bf16, [rows][width]) to sums [width], rows ascending.
void add_hidden(const uint16_t *hidden, size_t rows, size_t width, double *sums);

// Stores the mean of `rows` > 0 rows, whose sums are [width], in vector [width]; divided by its L2
// norm if `normalised`. Overwrites the sums.
void make_embedding(double *sums, uint64_t rows, size_t width, bool normalised, float *vector);

} // namespace stasis::kernels
