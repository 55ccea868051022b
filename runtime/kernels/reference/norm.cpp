// RMSNorm (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019) under C4.
#include "runtime/kernels/reference/arithmetic.h"
#include "runtime/kernels/reference/kernels.h"

namespace stasis::kernels::STASIS_REFERENCE {

namespace {

void rms_norm(const float *x, const float *weight, size_t n, float eps, float *y) {
    float lanes[kSumLanes] = {};
    for (size_t i = 0; i < n; ++i) {
        float &lane = lanes[i % kSumLanes];
        lane = fma(x[i], x[i], lane);
    }
    const float mean = sum_lanes(lanes) / static_cast<float>(n);
    const float scale = 1.0F / __builtin_sqrtf(mean + eps);
    for (size_t i = 0; i < n; ++i) {
        y[i] = (x[i] * scale) * weight[i];
    }
}

} // namespace

void add_norm(Table &table) {
    table.rms_norm = rms_norm;
}

} // namespace stasis::kernels::STASIS_REFERENCE
