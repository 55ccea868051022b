// Functions of 16 lanes (NUMERICS.md, C3, states every step): the operations of
// reference/functions.h, with selection in place of branches.
#pragma once

#include "runtime/kernels/generic/lanes/lanes.h"
#include "runtime/kernels/math.h"

namespace stasis::kernels::STASIS_TABLE {

// c[0] + c[1] x + ... by Horner's rule, one fma a step.
template <size_t n> [[gnu::always_inline]] inline Lanes polynomial(const float (&c)[n], Lanes x) {
    Lanes sum = broadcast(c[n - 1]);
    for (size_t i = n - 1; i-- > 0;) {
        sum = fma(sum, x, broadcast(c[i]));
    }
    return sum;
}

// exp(x) = 2^n exp(r), n = x / ln 2 rounded to nearest even, |r| <= ln 2 / 2. Lanes outside the
// domain compute something without meaning that is not selected.
[[gnu::always_inline]] inline Lanes exp(Lanes x) {
    constexpr float kLargest = 0x1.62e42ep+6F; // the largest x whose exp is finite
    constexpr float kRound = 0x1.8p+23F;       // adding it rounds to an integer
    constexpr float kCoefficients[] = {1.0F,           1.0F,           0x1.fffffcp-2F,
                                       0x1.555490p-3F, 0x1.5558f4p-5F, 0x1.123a68p-7F,
                                       0x1.6a235ep-10F};
    const Lanes shifted = fma(x, broadcast(0x1.715476p+0F), broadcast(kRound));
    const Lanes n = shifted - broadcast(kRound);
    Lanes r = fma(n, broadcast(-0x1.62e4p-1F), x);
    r = fma(n, broadcast(-0x1.7f7d1cp-20F), r);
    Lanes y = times_power_of_two(polynomial(kCoefficients, r), shifted);
    y = select(x < broadcast(kExpFloor), broadcast(0.0F), y);
    // Above, the sum is infinity; of a NaN it is NaN.
    return select(x <= broadcast(kLargest), y, x + broadcast(__builtin_inff()));
}

[[gnu::always_inline]] inline Lanes tanh(Lanes x) {
    constexpr float kCoefficients[] = {-0x1.555532p-2F, 0x1.110726p-3F, -0x1.b83c5ap-5F,
                                       0x1.522698p-6F, -0x1.75e1c2p-8F};
    const Lanes one = broadcast(1.0F);
    const Lanes two = broadcast(2.0F);
    const Lanes size = magnitude(x);
    const Lanes square = x * x;
    const Lanes near = fma(x * square, polynomial(kCoefficients, square), x);
    const Lanes far = with_sign_of(one - two / (exp(two * size) + one), x);
    return select(size < broadcast(0.625F), near, far);
}

[[gnu::always_inline]] inline Lanes sigmoid(Lanes x) {
    const Lanes one = broadcast(1.0F);
    const Lanes e = exp(-magnitude(x));
    return select(x < broadcast(0.0F), e, one) / (one + e);
}

[[gnu::always_inline]] inline Lanes softplus(Lanes x) {
    constexpr float kCoefficients[] = {0x1.555502p-1F, 0x1.99d208p-2F, 0x1.1ebd0ep-2F,
                                       0x1.1ed7bep-2F};
    const Lanes half = broadcast(0.5F);
    const Lanes e = exp(-magnitude(x));
    const Lanes twice = e / (broadcast(1.0F) + half * e);
    const Lanes s = half * twice;
    const Lanes square = s * s;
    const Lanes log = fma(s * square, polynomial(kCoefficients, square), twice);
    return larger(x, broadcast(0.0F)) + log;
}

} // namespace stasis::kernels::STASIS_TABLE
