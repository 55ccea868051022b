// The vector of a text from its final hidden states (C13), in double precision on the host,
// whatever computed these. Knows no models and no texts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis::kernels {

// Adds rows of final hidden states (bf16, [rows][width]) to sums [width], rows ascending.
void add_hidden(const uint16_t *hidden, size_t rows, size_t width, double *sums);

// Makes sums [width] of `rows` > 0 rows their mean.
void divide_sums(double *sums, uint64_t rows, size_t width);

// y[o] = bias[o] + the sum over i, ascending, of weights[i][o] * x[i]; without a bias (null) from
// +0 on. x [inputs], y [outputs].
void apply_dense(const float *weights, const float *bias, size_t inputs, size_t outputs,
                 const double *x, double *y);

// Stores x [width] in vector [width]; divided by its L2 norm if `normalised`. Overwrites x.
void store_embedding(double *x, size_t width, bool normalised, float *vector);

} // namespace stasis::kernels
