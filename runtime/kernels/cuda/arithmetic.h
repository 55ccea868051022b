// Single-precision operations of a kernel on the device. The plain ones flush (C2) but may decide
// what is tiny before rounding; those named c2_ give the contract's result on either kind of device.
//
// Where the plain ones do, they are enough:
// - Sums: the exact sum of two normal floats is a multiple of 2^-149, so one below 2^-126 is not
//   rounded at all. (A multiple of 2^-150 would not be either: 24 bits hold it.)
// - Quotients: with the divisor's exponent as a power of two apart, one below 2^-126 has a dividend
//   that is a unit in its last place smaller than the divisor, or more, and so lies a unit below
//   2^-126 itself: it is not rounded up to that.
// - fma(x, x, c) where c is not negative: a square is below 2^-126 only for x of 2^-63 less a unit,
//   or less, where it is twice as far below; a c that is not zero is 2^-126 or more.
// - fma(a, b, c) of bf16 factors, where the product is a multiple of 2^-150: with the biased
//   exponents A and B of the smallest factors that are not zero, that is A + B >= kSafeExponents (a
//   bf16 has 7 bits below its leading one: A - 127 - 7 + B - 127 - 7 >= -150).
// - Results that cannot come near 2^-126, or are added to what makes them vanish: all inside exp,
//   tanh and sigmoid.
// Knows no kernels.
#pragma once

#include "runtime/kernels/cuda/grid.h"

namespace stasis::kernels::device {

#ifdef __CUDACC__
__device__ inline float fma(float a, float b, float c) {
    return __fmaf_rn(a, b, c); // .ftz: the compiler is told to flush
}
__device__ inline float mul(float a, float b) {
    return __fmul_rn(a, b);
}
__device__ inline float add(float a, float b) {
    return __fadd_rn(a, b);
}
__device__ inline float div(float a, float b) {
    return __fdiv_rn(a, b);
}
__device__ inline float sqrt(float a) {
    return __fsqrt_rn(a);
}
#else
using host_grid::fma;
using host_grid::mul;
inline float add(float a, float b) {
    return a + b;
}
inline float div(float a, float b) {
    return a / b;
}
inline float sqrt(float a) {
    return __builtin_sqrtf(a);
}
#endif

inline constexpr uint32_t kSafeExponents = 127 + 127 + 14 - 150;
// Biased exponent that stands for "no number but zeros": safe with everything.
inline constexpr uint32_t kNoExponent = 255;

// The biased exponent of a bf16 that is not zero; of those that count as zero, kNoExponent.
__device__ inline uint32_t exponent_of(uint16_t value) {
    const uint32_t exponent = value >> 7 & 0xFFU;
    return exponent == 0 ? kNoExponent : exponent;
}

// Computes a result that came out as zero again, 2^64 times as large, where nothing is tiny that is
// not zero; then it is what C2 says of the rounded result. `large` is that.
__device__ inline float settle_tiny(float zero, float large) {
    const float magnitude = __builtin_fabsf(large);
    return magnitude == 0x1p-62F ? __builtin_copysignf(0x1p-126F, large) : zero;
}

__device__ inline float c2_mul(float a, float b) {
    const float result = mul(a, b);
    if (result != 0.0F) {
        return result;
    }
    // The smaller factor is below 1, or the product would not be tiny.
    const bool first = __builtin_fabsf(a) < __builtin_fabsf(b);
    return settle_tiny(result, first ? mul(mul(a, 0x1p64F), b) : mul(a, mul(b, 0x1p64F)));
}

__device__ inline float c2_fma(float a, float b, float c) {
    const float result = fma(a, b, c);
    // A large c that cancels leaves an exact zero: tiny sums have tiny terms.
    if (result != 0.0F || __builtin_fabsf(c) > 0x1p-60F) {
        return result;
    }
    const bool first = __builtin_fabsf(a) < __builtin_fabsf(b);
    const float large = mul(c, 0x1p64F);
    return settle_tiny(result,
                       first ? fma(mul(a, 0x1p64F), b, large) : fma(a, mul(b, 0x1p64F), large));
}

} // namespace stasis::kernels::device
