// exp, tanh, sigmoid, softplus in f32 (NUMERICS.md, C3, states every step). The polynomials
// are minimax fits made for this project (Remez exchange, relative error, rounded to float).
#pragma once

#include "runtime/kernels/math.h"
#include "runtime/kernels/reference/arithmetic.h"

namespace stasis::kernels::STASIS_REFERENCE {

// Returns c[0] + c[1] x + ... by Horner's rule, one fma a step.
template <size_t n> STASIS_FUNCTION float polynomial(const float (&c)[n], float x) {
    float sum = c[n - 1];
    for (size_t i = n - 1; i-- > 0;) {
        sum = fma(sum, x, c[i]);
    }
    return sum;
}

// Returns exp(x) = 2^n exp(r), n = x / ln 2 rounded to nearest even, |r| <= ln 2 / 2.
STASIS_FUNCTION float exp(float x) {
    constexpr float kLargest = 0x1.62e42ep+6F; // the largest x whose exp is finite
    constexpr float kRound = 0x1.8p+23F;       // adding it rounds to an integer
    constexpr float kCoefficients[] = {1.0F,           1.0F,           0x1.fffffcp-2F,
                                       0x1.555490p-3F, 0x1.5558f4p-5F, 0x1.123a68p-7F,
                                       0x1.6a235ep-10F};
    if (x < kExpFloor) {
        return 0.0F;
    }
    if (!(x <= kLargest)) {
        return x > kLargest ? __builtin_inff() : x; // NaN stays NaN
    }
    const float shifted = fma(x, 0x1.715476p+0F, kRound);
    const float n = shifted - kRound;
    float r = fma(n, -0x1.62e4p-1F, x);
    r = fma(n, -0x1.7f7d1cp-20F, r);
    const float power = polynomial(kCoefficients, r);
    // power * 2^n by adding n to the exponent: the result is normal, so nothing is rounded.
    const uint32_t exponent = __builtin_bit_cast(uint32_t, shifted) << 23;
    return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, power) + exponent);
}

STASIS_FUNCTION float tanh(float x) {
    constexpr float kCoefficients[] = {-0x1.555532p-2F, 0x1.110726p-3F, -0x1.b83c5ap-5F,
                                       0x1.522698p-6F, -0x1.75e1c2p-8F};
    const float magnitude = __builtin_fabsf(x);
    if (magnitude < 0.625F) { // x + x^3 P(x^2)
        const float square = x * x;
        return fma(x * square, polynomial(kCoefficients, square), x);
    }
    const float y = 1.0F - 2.0F / (exp(2.0F * magnitude) + 1.0F);
    return __builtin_copysignf(y, x);
}

STASIS_FUNCTION float sigmoid(float x) {
    const float e = exp(-__builtin_fabsf(x));
    return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}

// Returns log(1 + exp(x)) = max(x, 0) + log(1 + e) with e = exp(-|x|), and log(1 + e) =
// 2 artanh(s) = 2 s + s^3 Q(s^2) with 2 s = e / (1 + e / 2), at most 2/3.
STASIS_FUNCTION float softplus(float x) {
    constexpr float kCoefficients[] = {0x1.555502p-1F, 0x1.99d208p-2F, 0x1.1ebd0ep-2F,
                                       0x1.1ed7bep-2F};
    const float e = exp(-__builtin_fabsf(x));
    const float twice = e / (1.0F + 0.5F * e); // where e is tiny, e itself
    const float s = 0.5F * twice;
    const float square = s * s;
    const float log = fma(s * square, polynomial(kCoefficients, square), twice);
    return (x > 0.0F ? x : 0.0F) + log;
}

} // namespace stasis::kernels::STASIS_REFERENCE
