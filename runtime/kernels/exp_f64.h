// exp in double precision (NUMERICS.md, C3), in source that the host and devices share, written
// with + - * only. Static in each translation unit, so that every instruction set and compiler gets
// its own copy.
#pragma once

#include <cstddef>
#include <cstdint>

#ifndef STASIS_FUNCTION // the declaration of a function that may also run on a device
#define STASIS_FUNCTION inline
#endif

namespace stasis::kernels {

namespace {

// Returns c[0] + c[1] x + ... by Horner's rule, a product and a sum a step.
template <size_t n> STASIS_FUNCTION double polynomial(const double (&c)[n], double x) {
    double sum = c[n - 1];
    for (size_t i = n - 1; i-- > 0;) {
        sum = sum * x + c[i];
    }
    return sum;
}

// Adding kRound rounds to an integer, which is then in the low bits of the sum.
constexpr double kRound = 0x1.8p+52;
constexpr double kLn2High = 0x1.62e42fefa3800p-1; // 42 bits: its product with an exponent is exact
constexpr double kLn2Low = 0x1.ef35793c76730p-45;

// Returns exp(x + tail) for x within the range of exp_f64 and |tail| tiny compared to 1.
STASIS_FUNCTION double exp_sum(double x, double tail) {
    // (exp(r) - 1 - r) / r^2 on |r| <= ln 2 / 2: minimax, relative error of exp 2^-60.
    constexpr double kCoefficients[] = {
        0x1.0000000000000p-1,  0x1.555555555555bp-3,  0x1.5555555555502p-5,  0x1.111111110ec1bp-7,
        0x1.6c16c16c3077cp-10, 0x1.a01a01b398716p-13, 0x1.a01a0135fc721p-16, 0x1.71ddefddf7562p-19,
        0x1.27e5b4f594494p-22, 0x1.af6c5e82d4790p-26, 0x1.1e3cd09bbe569p-29};
    // x = n ln 2 + r, with n rounded to nearest and r as high - low.
    const double shifted = x * 0x1.71547652b82fep+0 + kRound;
    const double n = shifted - kRound;
    const double high = x - n * kLn2High;
    const double low = n * kLn2Low - tail;
    const double r = high - low;
    const double power = 1.0 + (high - (low - r * r * polynomial(kCoefficients, r)));
    // Adding n to the exponent of power multiplies it by 2^n.
    const uint64_t exponent = __builtin_bit_cast(uint64_t, shifted) << 52;
    return __builtin_bit_cast(double, __builtin_bit_cast(uint64_t, power) + exponent);
}

// Returns exp(x) over the whole range.
STASIS_FUNCTION double exp_whole(double x) {
    constexpr double kLargest = 0x1.62e42fefa39efp+9; // the largest x whose exp is finite
    if (x < -708.0) {
        return 0.0;
    }
    if (!(x <= kLargest)) {
        return x > kLargest ? __builtin_inf() : x; // NaN stays NaN
    }
    return exp_sum(x, 0.0);
}

} // namespace

} // namespace stasis::kernels
