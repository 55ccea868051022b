// Single-precision operations of a kernel on the device. The plain ones flush (C2), but the device
// may decide differently which results are tiny. Those named c2_ give the contract's result on each
// of three kinds of devices. For an exact result x below 2^-126, every device gives 2^-126 or zero:
// 2^-126
// - from 2^-126 - 2^-151 on, if it rounds x to 24 bits first (the contract, x86);
// - never, if it tests x itself;
// - from 2^-126 - 2^-150 on, if x becomes a denormal, a multiple of 2^-149, that is then flushed.
//   Ties round to 2^-126, which is even.
// So zero may replace 2^-126, and 2^-126 may replace zero.
//
// The plain operations are enough for:
// - Sums: the exact sum of two normal floats is a multiple of 2^-149, so one below 2^-126 is not
//   rounded at all, neither to 24 bits nor to a denormal.
// - fma(x, x, c) where c is not negative: a square is below 2^-126 only for x of 2^-63 - 2^-87 or
//   less, where it is 2^-126 - 2^-149 + 2^-174 or less; a c that is not zero is 2^-126 or more.
// - fma(a, b, c) of bf16 factors, if the product is a multiple of 2^-149, and so the sum: with the
//   biased exponents A and B of the smallest factors that are not zero, that is A + B >=
//   kSafeExponents (a bf16 has 7 bits below its leading one: A - 127 - 7 + B - 127 - 7 >= -149).
// - Results that cannot come near 2^-126, or are added to larger numbers in which they vanish: all
//   inside exp, tanh and sigmoid.
// Knows no kernels.
#pragma once

#include "runtime/kernels/bf16.h"
#include "runtime/kernels/cuda/grid.h"

namespace stasis::kernels::device {

#ifdef __CUDACC__
__device__ inline float fma(float a, float b, float c) {
    return __fmaf_rn(a, b, c); // .ftz: the compiler is set to flush
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
// Returns a number that is no denormal and not -0, rounded to a bf16 and widened again.
__device__ inline float rounded_to_bf16(float a) {
    uint32_t high = 0;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(high) : "f"(a), "f"(0.0F));
    return __builtin_bit_cast(float, high & 0xFFFF0000U);
}
#else
using host_grid::div;
using host_grid::fma;
using host_grid::mul;
inline float add(float a, float b) {
    return a + b;
}
inline float sqrt(float a) {
    return __builtin_sqrtf(a);
}
inline float rounded_to_bf16(float a) {
    return bf16_to_f32(f32_to_bf16(a));
}
#endif

inline constexpr uint32_t kSafeExponents = 127 + 127 + 14 - 149;
// Biased exponent of "only zeros", which is safe with every other.
inline constexpr uint32_t kNoExponent = 255;

// Returns the biased exponent of a bf16 that is not zero; kNoExponent for those that count as zero.
__device__ inline uint32_t exponent_of(uint16_t value) {
    const uint32_t exponent = value >> 7 & 0xFFU;
    return exponent == 0 ? kNoExponent : exponent;
}

// Reports whether a result may differ from the contract's: it is zero, or 2^-126.
__device__ inline bool unsettled(float result) {
    return __builtin_fabsf(result) <= 0x1p-126F;
}

// Returns the contract's result in place of an unsettled one. `large` is the same result computed
// 2^64 times as large. No number near 2^-126 * 2^64 is tiny, so it is the exact result rounded to
// 24 bits.
__device__ inline float settle_tiny(float result, float large) {
    const bool kept = __builtin_fabsf(large) >= 0x1p-62F;
    return __builtin_copysignf(kept ? 0x1p-126F : 0.0F, result);
}

__device__ inline float c2_mul(float a, float b) {
    const float result = mul(a, b);
    if (!unsettled(result)) {
        return result;
    }
    // The smaller factor is below 1, or the product would be larger.
    const bool first = __builtin_fabsf(a) < __builtin_fabsf(b);
    return settle_tiny(result, first ? mul(mul(a, 0x1p64F), b) : mul(a, mul(b, 0x1p64F)));
}

__device__ inline float c2_fma(float a, float b, float c) {
    const float result = fma(a, b, c);
    // A large c that cancels leaves an exact zero: if the product is above 2^-61 too, the sum is a
    // multiple of 2^-108.
    if (!unsettled(result) || __builtin_fabsf(c) > 0x1p-60F) {
        return result;
    }
    const bool first = __builtin_fabsf(a) < __builtin_fabsf(b);
    const float large = mul(c, 0x1p64F);
    return settle_tiny(result,
                       first ? fma(mul(a, 0x1p64F), b, large) : fma(a, mul(b, 0x1p64F), large));
}

// Only one quotient below 2^-126 is rounded up to it, as a denormal: 2^-126 - 2^-150, with a
// divisor that is a power of two. With other divisors a unit of the dividend is more of the
// quotient. So 2^-126 is right if the exact quotient is 2^-126 or more; the products are exact.
__device__ inline float c2_div(float a, float b) {
    const float result = div(a, b);
    const bool below = __builtin_fabsf(result) == 0x1p-126F &&
                       mul(__builtin_fabsf(a), 0x1p64F) < mul(__builtin_fabsf(b), 0x1p-62F);
    return below ? __builtin_copysignf(0.0F, result) : result;
}

} // namespace stasis::kernels::device
