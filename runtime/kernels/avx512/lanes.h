// Lanes in one register of AVX-512 (F, BW, DQ, VL). The same names as in avx2/lanes.h; what is
// computed with them is in generic/lanes/ and knows neither.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/avx512/intrinsics.h"

namespace stasis::kernels::STASIS_TABLE {

// 16 values of f32. Operators round once each, as C3 asks.
struct Lanes {
    __m512 all;
};

// 16 truth values.
struct Mask {
    __mmask16 all;
};

// Lane j is true where bit j of `bits` is 1; and back.
[[gnu::always_inline]] inline Mask mask_of(uint32_t bits) {
    return {static_cast<__mmask16>(bits)};
}
[[gnu::always_inline]] inline uint32_t bits_of(Mask mask) {
    return mask.all;
}

[[gnu::always_inline]] inline Lanes broadcast(float x) {
    return {_mm512_set1_ps(x)};
}

[[gnu::always_inline]] inline Lanes operator+(Lanes a, Lanes b) {
    return {_mm512_add_ps(a.all, b.all)};
}
[[gnu::always_inline]] inline Lanes operator-(Lanes a, Lanes b) {
    return {_mm512_sub_ps(a.all, b.all)};
}
[[gnu::always_inline]] inline Lanes operator*(Lanes a, Lanes b) {
    return {_mm512_mul_ps(a.all, b.all)};
}
[[gnu::always_inline]] inline Lanes operator/(Lanes a, Lanes b) {
    return {_mm512_div_ps(a.all, b.all)};
}
// a * b + c with one rounding.
[[gnu::always_inline]] inline Lanes fma(Lanes a, Lanes b, Lanes c) {
    return {_mm512_fmadd_ps(a.all, b.all, c.all)};
}

// On the sign bit alone: NaN keeps its other bits.
[[gnu::always_inline]] inline Lanes operator-(Lanes x) {
    return {_mm512_xor_ps(x.all, _mm512_set1_ps(-0.0F))};
}
[[gnu::always_inline]] inline Lanes magnitude(Lanes x) {
    return {_mm512_andnot_ps(_mm512_set1_ps(-0.0F), x.all)};
}
[[gnu::always_inline]] inline Lanes with_sign_of(Lanes x, Lanes sign) {
    const __m512 bit = _mm512_and_ps(sign.all, _mm512_set1_ps(-0.0F));
    return {_mm512_or_ps(magnitude(x).all, bit)};
}

// False where a or b is NaN.
[[gnu::always_inline]] inline Mask operator<(Lanes a, Lanes b) {
    return {_mm512_cmp_ps_mask(a.all, b.all, _CMP_LT_OQ)};
}
[[gnu::always_inline]] inline Mask operator<=(Lanes a, Lanes b) {
    return {_mm512_cmp_ps_mask(a.all, b.all, _CMP_LE_OQ)};
}
[[gnu::always_inline]] inline Lanes select(Mask mask, Lanes yes, Lanes no) {
    return {_mm512_mask_blend_ps(mask.all, no.all, yes.all)};
}
// a > b ? a : b
[[gnu::always_inline]] inline Lanes larger(Lanes a, Lanes b) {
    return {_mm512_max_ps(a.all, b.all)};
}

// x * 2^n where the result is normal; the low 9 bits of each lane of `n` hold the integer.
[[gnu::always_inline]] inline Lanes times_power_of_two(Lanes x, Lanes n) {
    const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(n.all), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x.all), exponent))};
}

// The first `count` lanes; the others are +0, and the memory behind them is not touched. 16 are
// meant to be known to the compiler.
[[gnu::always_inline]] inline Lanes load(const float *x, size_t count = 16) {
    if (count == 16) {
        return {_mm512_loadu_ps(x)};
    }
    return {_mm512_maskz_loadu_ps(mask_of((1U << count) - 1).all, x)};
}
[[gnu::always_inline]] inline void store(Lanes x, float *y, size_t count = 16) {
    if (count == 16) {
        _mm512_storeu_ps(y, x.all);
    } else {
        _mm512_mask_storeu_ps(y, mask_of((1U << count) - 1).all, x.all);
    }
}

// Stores all 16 in memory without reading the line, and past the caches; y begins a line of 64
// bytes. Other threads see them behind finish_far_stores.
[[gnu::always_inline]] inline void store_far(Lanes x, float *y) {
    _mm512_stream_ps(y, x.all);
}
[[gnu::always_inline]] inline void finish_far_stores() {
    _mm_sfence();
}

// bf16 widened, and narrowed by cutting off the lower halves.
[[gnu::always_inline]] inline Lanes load_bf16(const uint16_t *x, size_t count = 16) {
    const __m256i bits = count == 16 ? _mm256_loadu_si256(reinterpret_cast<const __m256i *>(x))
                                     : _mm256_maskz_loadu_epi16(mask_of((1U << count) - 1).all, x);
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
[[gnu::always_inline]] inline void store_upper_halves(Lanes x, uint16_t *y, size_t count = 16) {
    const __m256i bits = _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(x.all), 16));
    if (count == 16) {
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(y), bits);
    } else {
        _mm256_mask_storeu_epi16(y, mask_of((1U << count) - 1).all, bits);
    }
}

// Rounded to bf16 by C6, as f32. On the bits, so that the floating-point environment has no say.
[[gnu::always_inline]] inline Lanes rounded_to_bf16(Lanes x) {
    const __m512i bits = _mm512_castps_si512(x.all);
    const __m512i size = _mm512_castps_si512(magnitude(x).all);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    const __mmask16 nan = _mm512_cmpgt_epi32_mask(size, _mm512_set1_epi32(0x7F800000));
    sum = _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x00400000));
    const __mmask16 normal = _mm512_cmpgt_epi32_mask(size, _mm512_set1_epi32(0x007FFFFF));
    sum = _mm512_maskz_and_epi32(normal, sum, _mm512_set1_epi32(-0x10000));
    return {_mm512_castsi512_ps(sum)};
}

// The tree over the lanes of a sum (C4).
[[gnu::always_inline]] inline float sum_of(Lanes x) {
    const __m256 high = _mm512_extractf32x8_ps(x.all, 1);
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x.all), high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
// The largest lane; a zero may have either sign.
[[gnu::always_inline]] inline float largest_of(Lanes x) {
    const __m256 high = _mm512_extractf32x8_ps(x.all, 1);
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x.all), high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
[[gnu::always_inline]] inline float first_of(Lanes x) {
    return _mm512_cvtss_f32(x.all);
}

} // namespace stasis::kernels::STASIS_TABLE
