// The contract's elementary functions (C3); NUMERICS.md states every step and the accuracy. Single
// precision is in the reference kernels. Double precision is written with + - * / only, and no
// intermediate result in the stated domains comes near a denormal, so flushing does not change it.
#include "runtime/kernels/math.h"

#include <bit>
#include <cstddef>
#include <cstdint>

#include "runtime/kernels/exp_f64.h"
#include "runtime/kernels/reference/reference.h"

namespace stasis::kernels {

namespace {

// An unevaluated sum; `low` is at most half a unit in the last place of `high`.
struct Pair {
    double high, low;
};

// Returns a + b exactly, for any sizes (Knuth, TAOCP 2, 4.2.2).
Pair two_sum(double a, double b) {
    const double sum = a + b;
    const double back = sum - a;
    return {sum, (a - (sum - back)) + (b - back)};
}

// Returns a * b exactly (Dekker, "A floating-point technique for extending the available
// precision", 1971).
Pair two_product(double a, double b) {
    constexpr double kSplit = 0x1p27 + 1.0;
    const double a_split = a * kSplit;
    const double b_split = b * kSplit;
    const double a_high = a_split - (a_split - a);
    const double b_high = b_split - (b_split - b);
    const double a_low = a - a_high;
    const double b_low = b - b_high;
    const double product = a * b;
    const double error =
        ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
    return {product, error};
}

// x = 2^exponent * (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2) (to the last bit of the mantissa's
// high word); then log(1 + f) = 2 s + s z R(z), s = f / (2 + f), z = s^2, which is the series of
// artanh (the scheme of fdlibm's e_log.c, Sun Microsystems, 1993).
struct Reduced {
    double exponent, f;
};

Reduced reduce_log(double x) {
    const uint64_t bits = std::bit_cast<uint64_t>(x);
    constexpr uint64_t kSqrtHalf = 0x3FE6A09E00000000;
    const auto exponent = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
    const uint64_t mantissa = bits - (static_cast<uint64_t>(exponent) << 52);
    return {static_cast<double>(exponent), std::bit_cast<double>(mantissa) - 1.0};
}

double log_series(double z) {
    // (2 artanh(s) / s - 2) / z on |s| <= (sqrt(2) - 1) / (sqrt(2) + 1): minimax, 2^-61.
    constexpr double kCoefficients[] = {
        0x1.5555555555555p-1, 0x1.9999999999e0ep-2, 0x1.249249242a147p-2, 0x1.c71c725a61859p-3,
        0x1.745cddc5d25d0p-3, 0x1.3b20bebffc3c5p-3, 0x1.0f5b1645247c6p-3, 0x1.0f72958a14450p-3};
    return polynomial(kCoefficients, z);
}

// Returns log(x) with a relative error of about 2^-59.
Pair log_pair(double x) {
    const auto [exponent, f] = reduce_log(x);
    // s = f / (2 + f) with a correction of its rounding: remainder / (2 + f).
    const Pair divisor = two_sum(2.0, f);
    const double s = f / divisor.high;
    const Pair product = two_product(s, divisor.high);
    const double s_low = (((f - product.high) - product.low) - s * divisor.low) / divisor.high;
    const double z = s * s;
    const double rest = s * z * log_series(z);
    const Pair sum = two_sum(exponent * kLn2High, 2.0 * s);
    const double low = sum.low + (2.0 * s_low + (rest + exponent * kLn2Low));
    const double high = sum.high + low;
    return {high, (sum.high - high) + low};
}

// x = n pi/2 + (high + low), |x| <= 2^40, n mod 4 in `quadrant`. Three doubles hold the inverse of
// 2/pi to a relative 2^-161, which leaves an error of 2^-118 in n pi/2; no double in range is
// nearer to a multiple of pi/2 than 2^-62 (Muller et al., "Handbook of Floating-Point Arithmetic",
// 11.2.2).
struct Angle {
    Pair rest;
    uint64_t quadrant;
};

Angle reduce_angle(double x) {
    const double shifted = x * 0x1.45f306dc9c883p-1 + kRound;
    const double n = shifted - kRound;
    const Pair first = two_product(n, 0x1.921fb54442d18p+0);
    const Pair second = two_product(n, 0x1.1a62633145c07p-54);
    const double third = n * -0x1.f1976b7ed8fbcp-110;
    // This difference is exact, because x is near first.
    Pair rest = two_sum(x - first.high, -first.low);
    const Pair next = two_sum(rest.high, -second.high);
    const double low = ((rest.low + next.low) - second.low) - third;
    rest.high = next.high + low;
    rest.low = (next.high - rest.high) + low;
    return {rest, std::bit_cast<uint64_t>(shifted) & 3U};
}

// Return sin and cos of high + low, |high| <= pi/4 and slightly more. Minimax, relative error
// 2^-57, 2^-59.
double sin_rest(Pair x) {
    constexpr double kCoefficients[] = {-0x1.5555555555555p-3,  0x1.111111111110bp-7,
                                        -0x1.a01a01a01898fp-13, 0x1.71de3a531e5e8p-19,
                                        -0x1.ae6452758991ep-26, 0x1.61207cd7f0773p-33,
                                        -0x1.aa9a8a340a83ep-41};
    const double z = x.high * x.high;
    const double cube = x.high * z;
    return x.high + (cube * polynomial(kCoefficients, z) + (x.low - 0.5 * z * x.low));
}

double cos_rest(Pair x) {
    constexpr double kCoefficients[] = {0x1.5555555555555p-5,  -0x1.6c16c16c16c0fp-10,
                                        0x1.a01a01a018c04p-16, -0x1.27e4fb75de466p-22,
                                        0x1.1eed8c81e92adp-29, -0x1.93931348a190ep-37,
                                        0x1.aab584772f1c6p-45};
    const double z = x.high * x.high;
    const double half = 0.5 * z;
    const double main = 1.0 - half;
    const double lost = (1.0 - main) - half; // by the subtraction
    return main + (lost + (z * z * polynomial(kCoefficients, z) - x.high * x.low));
}

// Returns the sine of x plus `turns` quarter turns.
double sin_turned(double x, uint64_t turns) {
    const Angle angle = reduce_angle(x);
    const uint64_t quadrant = angle.quadrant + turns;
    const double y = (quadrant & 1U) != 0 ? cos_rest(angle.rest) : sin_rest(angle.rest);
    return (quadrant & 2U) != 0 ? -y : y;
}

} // namespace

float exp_f32(float x) {
    // Static, for it is called for one number after another.
    static float (*const exp)(float) = best_reference().exp;
    return exp(x);
}

double exp_f64(double x) {
    return exp_whole(x);
}

double log_f64(double x) {
    const auto [exponent, f] = reduce_log(x);
    const double s = f / (2.0 + f);
    const double z = s * s;
    const double half = 0.5 * f * f;
    // 2 s = f - s f and s f = half - s half: the leading term f is exact.
    const double rest = s * (half + z * log_series(z)) + exponent * kLn2Low;
    return exponent * kLn2High - ((half - rest) - f);
}

double pow_f64(double x, double y) {
    const Pair log = log_pair(x);
    const Pair product = two_product(log.high, y);
    return exp_sum(product.high, product.low + log.low * y);
}

double sin_f64(double x) {
    return sin_turned(x, 0);
}
double cos_f64(double x) {
    return sin_turned(x, 1);
}

} // namespace stasis::kernels
