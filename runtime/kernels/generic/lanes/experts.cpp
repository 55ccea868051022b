// The router's softmax, the weighted sum of experts, and the shared expert's share (C12).
#include "runtime/kernels/generic/lanes/functions.h"
#include "runtime/kernels/generic/lanes/kernels.h"

namespace stasis::kernels::STASIS_TABLE {

namespace {

void softmax(const float *x, size_t n, float *y) {
    const auto exists = [](size_t count) STASIS_STEP { return mask_of((1U << count) - 1); };
    Lanes maxima = broadcast(x[0]);
    by_lanes(n, [&](size_t i, size_t count) STASIS_STEP {
        maxima = larger(select(exists(count), load(x + i, count), maxima), maxima);
    });
    const Lanes maximum = broadcast(largest_of(maxima));
    Lanes sums = broadcast(0.0F);
    by_lanes(n, [&](size_t i, size_t count) STASIS_STEP {
        const Lanes power = exp(load(x + i, count) - maximum);
        sums = sums + select(exists(count), power, broadcast(0.0F)); // +0 changes no sum
        store(power, y + i, count);
    });
    const Lanes sum = broadcast(sum_of(sums));
    by_lanes(n, [&](size_t i, size_t count)
                    STASIS_STEP { store(load(y + i, count) / sum, y + i, count); });
}

void add_scaled(const float *x, float factor, size_t n, float *y) {
    by_lanes(n, [&](size_t i, size_t count) STASIS_STEP {
        store(fma(load(x + i, count), broadcast(factor), load(y + i, count)), y + i, count);
    });
}

void sigmoid_of(const float *x, size_t n, float *y) {
    by_lanes(n, [&](size_t i, size_t count)
                    STASIS_STEP { store(sigmoid(load(x + i, count)), y + i, count); });
}

} // namespace

void add_experts(Table &table) {
    table.softmax = softmax;
    table.add_scaled = add_scaled;
    table.sigmoid = sigmoid_of;
}

} // namespace stasis::kernels::STASIS_TABLE
