// RMSNorm (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019) under C4, and the L2
// norm of C11.
#include "runtime/kernels/generic/lanes/kernels.h"
#include "runtime/kernels/generic/lanes/lanes.h"

namespace stasis::kernels::STASIS_TABLE {

namespace {

[[gnu::always_inline]] inline float sum_of_squares(const float *x, size_t n) {
    Lanes squares = broadcast(0.0F);
    by_lanes(n, [&](size_t i, size_t count) STASIS_STEP {
        const Lanes part = load(x + i, count); // +0 squared changes no sum
        squares = fma(part, part, squares);
    });
    return sum_of(squares);
}

void rms_norm(const float *x, const float *weight, size_t n, float eps, float *y) {
    const float mean = sum_of_squares(x, n) / static_cast<float>(n);
    const Lanes scale = broadcast(1.0F / __builtin_sqrtf(mean + eps));
    by_lanes(n, [&](size_t i, size_t count) STASIS_STEP {
        store((load(x + i, count) * scale) * load(weight + i, count), y + i, count);
    });
}

void l2_norm(const float *x, size_t n, float eps, float factor, float *y) {
    const Lanes scale = broadcast(1.0F / __builtin_sqrtf(sum_of_squares(x, n) + eps));
    by_lanes(n, [&](size_t i, size_t count) STASIS_STEP {
        store((load(x + i, count) * scale) * broadcast(factor), y + i, count);
    });
}

} // namespace

void add_norm(Table &table) {
    table.rms_norm = rms_norm;
    table.l2_norm = l2_norm;
}

} // namespace stasis::kernels::STASIS_TABLE
