// Factors whose product lies just below 2^-126 and is rounded up to it: what a device that decides
// before rounding calls tiny, and the contract does not (C2). Rare among numbers made by chance.
#pragma once

#include <cmath>

#include "runtime/kernels/environment.h"
#include "tests/kernels/inputs.h"

// The exact product is below 2^-126 and not below 2^-126 - 2^-151. Exact in double.
inline bool on_edge(float a, float b) {
    const double product = std::fabs(double{a} * double{b});
    return product < 0x1p-126 && product >= 0x1p-126 - 0x1p-151;
}

// The b that comes nearest to that; a is below 1, or b would be a denormal.
inline float partner(float a) {
    const float b = static_cast<float>(0x1p-126 / double{a});
    return std::fabs(double{a} * double{b}) < 0x1p-126 ? b : std::nextafter(b, 0.0F);
}

// A number with a partner that is on the edge, of either sign, around 2^exponent, which is below 1.
inline float edge_factor(Numbers &numbers, int exponent) {
    for (;;) {
        const float a = std::ldexp(numbers.next(Kind::plain), exponent + 1);
        if (on_edge(a, partner(a))) {
            return a;
        }
    }
}

// A row and its norm's weights: of four elements one lies on the edge with the norm's scale, and
// one, times the scale, with its weight.
struct EdgeNorm {
    std::vector<float> x, weight;
};

inline EdgeNorm edge_norm(Numbers &numbers, size_t n, float eps) {
    const stasis::kernels::FloatEnvironment environment;
    for (;;) {
        EdgeNorm row{numbers.floats(n, Kind::plain), numbers.floats(n, Kind::plain)};
        std::vector<float> y(n);
        for (size_t i = 0; i < n; ++i) { // so that the scale is below 1, and its product with some
            row.x[i] *= i % 4 == 2 ? 0x1p-4F : 0x1p6F;
        }
        for (size_t i = 1; i < n; i += 4) {
            row.x[i] = 0.0F;
        }
        row.x[0] = row.weight[0] = 1.0F; // so that y[0] is the scale
        stasis::kernels::reference_table().rms_norm(row.x.data(), row.weight.data(), n, eps,
                                                    y.data());
        const float scale = y[0];
        if (on_edge(scale, partner(scale))) {
            for (size_t i = 1; i < n; i += 4) {
                row.x[i] = partner(scale); // its square adds nothing
                row.weight[i] = 0x1p10F;
            }
            for (size_t i = 2; i < n; i += 4) {
                row.weight[i] = partner(row.x[i] * scale);
            }
            return row;
        }
    }
}
