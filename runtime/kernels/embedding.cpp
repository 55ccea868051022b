// Sums and norms of embeddings; see embedding.h.
#include "runtime/kernels/embedding.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "runtime/kernels/bf16.h"

namespace stasis::kernels {

namespace {

// A vector of zeros stays one.
constexpr double kNormLeast = 1e-12;

// C4: the sum of the squares.
double sum_of_squares(const double *x, size_t n) {
    constexpr size_t kLanes = 16;
    double lane[kLanes] = {};
    for (size_t i = 0; i < n; ++i) {
        const double square = x[i] * x[i];
        lane[i % kLanes] = lane[i % kLanes] + square;
    }
    for (size_t half = kLanes / 2; half != 0; half /= 2) {
        for (size_t j = 0; j < half; ++j) {
            lane[j] = lane[j] + lane[j + half];
        }
    }
    return lane[0];
}

} // namespace

void add_hidden(const uint16_t *hidden, size_t rows, size_t width, double *sums) {
    for (size_t row = 0; row < rows; ++row) {
        for (size_t i = 0; i < width; ++i) {
            sums[i] = sums[i] + static_cast<double>(bf16_to_f32(hidden[row * width + i]));
        }
    }
}

void divide_sums(double *sums, uint64_t rows, size_t width) {
    assert(rows > 0);
    for (size_t i = 0; i < width; ++i) {
        sums[i] = sums[i] / static_cast<double>(rows);
    }
}

void apply_dense(const float *weights, const float *bias, size_t inputs, size_t outputs,
                 const double *x, double *y) {
    for (size_t o = 0; o < outputs; ++o) {
        y[o] = bias == nullptr ? 0.0 : static_cast<double>(bias[o]);
    }
    for (size_t i = 0; i < inputs; ++i) {
        for (size_t o = 0; o < outputs; ++o) {
            y[o] = y[o] + static_cast<double>(weights[i * outputs + o]) * x[i];
        }
    }
}

void store_embedding(double *x, size_t width, bool normalised, float *vector) {
    if (normalised) {
        const double norm = std::max(std::sqrt(sum_of_squares(x, width)), kNormLeast);
        for (size_t i = 0; i < width; ++i) {
            x[i] = x[i] / norm;
        }
    }
    for (size_t i = 0; i < width; ++i) {
        vector[i] = static_cast<float>(x[i]);
    }
}

} // namespace stasis::kernels
