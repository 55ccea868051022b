// The arithmetic of the reference kernels: fma and the fixed tree of a sum. The kernels are
// compiled twice from one source, into the namespace that STASIS_REFERENCE names: `portable` for
// any CPU and `with_fma` for those with FMA instructions. Inline functions are in that namespace
// too; otherwise the linker would keep one of the two and use it for both.
#pragma once

#include <cstddef>
#include <cstdint>

#ifndef STASIS_FUNCTION // the declaration of a function that may also run on a device
#define STASIS_FUNCTION inline
#endif

namespace stasis::kernels::STASIS_REFERENCE {

#ifndef STASIS_DEVICE_TEXT // devices have their own, in cuda/arithmetic.h

// Returns a * b + c with one rounding.
inline float fma(float a, float b, float c) {
#ifdef __FMA__
    return __builtin_fmaf(a, b, c);
#else
    // Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (IEEE Trans. Comput. 57,
    // 2008): the product of two floats is exact in double. The sum is rounded to odd in double;
    // rounding that to float equals one rounding of the exact result, flushing included.
    const double product = static_cast<double>(a) * static_cast<double>(b);
    const double addend = static_cast<double>(c);
    const double sum = product + addend;
    const double back = sum - product;
    const double error = (product - (sum - back)) + (addend - back); // exact (Knuth)
    uint64_t bits = __builtin_bit_cast(uint64_t, sum);
    const bool inexact = error < 0.0 || error > 0.0; // false for NaN
    if (inexact && (bits & 1U) == 0) {
        bits += (error > 0.0) == (sum > 0.0) ? 1U : ~uint64_t{0};
    }
    return static_cast<float>(__builtin_bit_cast(double, bits));
#endif
}

#endif

inline constexpr size_t kSumLanes = 16;

// Adds up the lanes of a sum by the tree of C4.
STASIS_FUNCTION float sum_lanes(float (&lanes)[kSumLanes]) {
    for (size_t half = kSumLanes / 2; half > 0; half /= 2) {
        for (size_t j = 0; j < half; ++j) {
            lanes[j] += lanes[j + half];
        }
    }
    return lanes[0];
}

} // namespace stasis::kernels::STASIS_REFERENCE
