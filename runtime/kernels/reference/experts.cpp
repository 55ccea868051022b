// What a mixture of experts needs beside products: the router's softmax, the weighted sum of what
// the chosen experts give, and the share of the shared expert (C12).
#include "runtime/kernels/reference/functions.h"
#include "runtime/kernels/reference/kernels.h"

namespace stasis::kernels::STASIS_REFERENCE {

namespace {

void softmax(const float *x, size_t n, float *y) {
    float maximum = x[0];
    for (size_t i = 1; i < n; ++i) {
        maximum = x[i] > maximum ? x[i] : maximum;
    }
    float lanes[kSumLanes] = {};
    for (size_t i = 0; i < n; ++i) {
        y[i] = exp(x[i] - maximum);
        lanes[i % kSumLanes] += y[i];
    }
    const float sum = sum_lanes(lanes);
    for (size_t i = 0; i < n; ++i) {
        y[i] = y[i] / sum;
    }
}

void add_scaled(const float *x, float factor, size_t n, float *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = fma(x[i], factor, y[i]);
    }
}

void sigmoid_of(const float *x, size_t n, float *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = sigmoid(x[i]);
    }
}

} // namespace

void add_experts(Table &table) {
    table.softmax = softmax;
    table.add_scaled = add_scaled;
    table.sigmoid = sigmoid_of;
}

} // namespace stasis::kernels::STASIS_REFERENCE
