// Single-precision arithmetic of the contract done by MPFR: one rounding to 24 bits, to nearest
// even, without a bound on the exponent; then C2's flushing and overflow. Independent of the
// processor and of its floating-point environment, so that it can judge both.
#pragma once

#include <mpfr.h>

#include <bit>
#include <cstdint>

namespace soft {

// A 24-bit MPFR number.
struct Number {
    mpfr_t value;
    Number() { mpfr_init2(value, 24); }
    explicit Number(float x) : Number() { set(x); }
    ~Number() { mpfr_clear(value); }
    Number(const Number &) = delete;
    Number &operator=(const Number &) = delete;

    // Denormal inputs count as signed zero.
    void set(float x) {
        const uint32_t bits = std::bit_cast<uint32_t>(x);
        if ((bits & 0x7F800000U) == 0) {
            mpfr_set_zero(value, (bits >> 31) != 0 ? -1 : 1);
        } else {
            mpfr_set_flt(value, x, MPFR_RNDN);
        }
    }

    // Results below 2^-126 become signed zero, results from 2^128 on infinity.
    float get() const {
        if (mpfr_regular_p(value) != 0 && mpfr_get_exp(value) < -125) {
            return mpfr_signbit(value) != 0 ? -0.0F : 0.0F;
        }
        return mpfr_get_flt(value, MPFR_RNDN);
    }
};

inline float fma(float a, float b, float c) {
    static thread_local Number x, y, z, result;
    x.set(a);
    y.set(b);
    z.set(c);
    mpfr_fma(result.value, x.value, y.value, z.value, MPFR_RNDN);
    return result.get();
}

using Operation = int(mpfr_ptr, mpfr_srcptr, mpfr_srcptr, mpfr_rnd_t);

inline float apply(Operation *operation, float a, float b) {
    static thread_local Number x, y, result;
    x.set(a);
    y.set(b);
    operation(result.value, x.value, y.value, MPFR_RNDN);
    return result.get();
}

inline float add(float a, float b) {
    return apply(mpfr_add, a, b);
}
inline float sub(float a, float b) {
    return apply(mpfr_sub, a, b);
}
inline float mul(float a, float b) {
    return apply(mpfr_mul, a, b);
}
inline float div(float a, float b) {
    return apply(mpfr_div, a, b);
}

inline float sqrt(float a) {
    static thread_local Number x, result;
    x.set(a);
    mpfr_sqrt(result.value, x.value, MPFR_RNDN);
    return result.get();
}

} // namespace soft
