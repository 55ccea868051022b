// RMSNorm (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019) under C4, and the L2
// norm of C11.
#include "runtime/kernels/reference/arithmetic.h"
#include "runtime/kernels/reference/kernels.h"

namespace stasis::kernels::STASIS_REFERENCE {

namespace {

float sum_of_squares(const float *x, size_t n) {
    float lanes[kSumLanes] = {};
    for (size_t i = 0; i < n; ++i) {
        float &lane = lanes[i % kSumLanes];
        lane = fma(x[i], x[i], lane);
    }
    return sum_lanes(lanes);
}

void rms_norm(const float *x, const float *weight, size_t n, float eps, float *y) {
    const float mean = sum_of_squares(x, n) / static_cast<float>(n);
    const float scale = 1.0F / __builtin_sqrtf(mean + eps);
    for (size_t i = 0; i < n; ++i) {
        y[i] = (x[i] * scale) * weight[i];
    }
}

void l2_norm(const float *x, size_t n, float eps, float factor, float *y) {
    const float scale = 1.0F / __builtin_sqrtf(sum_of_squares(x, n) + eps);
    for (size_t i = 0; i < n; ++i) {
        y[i] = (x[i] * scale) * factor;
    }
}

} // namespace

void add_norm(Table &table) {
    table.rms_norm = rms_norm;
    table.l2_norm = l2_norm;
}

} // namespace stasis::kernels::STASIS_REFERENCE
