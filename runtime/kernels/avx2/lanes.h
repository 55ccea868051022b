// Lanes in two registers of AVX2 with FMA. The same names as in avx512/lanes.h; what is computed
// with them is in generic/lanes/ and knows neither.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace stasis::kernels::STASIS_TABLE {

// 16 values of f32, 0 to 7 in `low`. Operators round once each, as C3 asks.
struct Lanes {
    __m256 low, high;
};

// 16 truth values: all bits of a lane, or none.
struct Mask {
    __m256i low, high;
};

// Lane j is true where bit j of `bits` is 1; and back.
[[gnu::always_inline]] inline Mask mask_of(uint32_t bits) {
    const __m256i low = _mm256_setr_epi32(0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x80);
    const __m256i high = _mm256_slli_epi32(low, 8);
    const __m256i all = _mm256_set1_epi32(static_cast<int>(bits));
    return {_mm256_cmpeq_epi32(_mm256_and_si256(all, low), low),
            _mm256_cmpeq_epi32(_mm256_and_si256(all, high), high)};
}
[[gnu::always_inline]] inline uint32_t bits_of(Mask mask) {
    const int low = _mm256_movemask_ps(_mm256_castsi256_ps(mask.low));
    const int high = _mm256_movemask_ps(_mm256_castsi256_ps(mask.high));
    return static_cast<uint32_t>(high << 8 | low);
}

[[gnu::always_inline]] inline Lanes broadcast(float x) {
    return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

[[gnu::always_inline]] inline Lanes operator+(Lanes a, Lanes b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
[[gnu::always_inline]] inline Lanes operator-(Lanes a, Lanes b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
[[gnu::always_inline]] inline Lanes operator*(Lanes a, Lanes b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
[[gnu::always_inline]] inline Lanes operator/(Lanes a, Lanes b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
// a * b + c with one rounding.
[[gnu::always_inline]] inline Lanes fma(Lanes a, Lanes b, Lanes c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

// On the sign bit alone: NaN keeps its other bits.
[[gnu::always_inline]] inline Lanes operator-(Lanes x) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_xor_ps(x.low, sign), _mm256_xor_ps(x.high, sign)};
}
[[gnu::always_inline]] inline Lanes magnitude(Lanes x) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
}
[[gnu::always_inline]] inline Lanes with_sign_of(Lanes x, Lanes sign) {
    const __m256 bit = _mm256_set1_ps(-0.0F);
    const Lanes size = magnitude(x);
    return {_mm256_or_ps(size.low, _mm256_and_ps(sign.low, bit)),
            _mm256_or_ps(size.high, _mm256_and_ps(sign.high, bit))};
}

// False where a or b is NaN.
[[gnu::always_inline]] inline Mask operator<(Lanes a, Lanes b) {
    return {_mm256_castps_si256(_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
            _mm256_castps_si256(_mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
[[gnu::always_inline]] inline Mask operator<=(Lanes a, Lanes b) {
    return {_mm256_castps_si256(_mm256_cmp_ps(a.low, b.low, _CMP_LE_OQ)),
            _mm256_castps_si256(_mm256_cmp_ps(a.high, b.high, _CMP_LE_OQ))};
}
[[gnu::always_inline]] inline Lanes select(Mask mask, Lanes yes, Lanes no) {
    return {_mm256_blendv_ps(no.low, yes.low, _mm256_castsi256_ps(mask.low)),
            _mm256_blendv_ps(no.high, yes.high, _mm256_castsi256_ps(mask.high))};
}
// a > b ? a : b
[[gnu::always_inline]] inline Lanes larger(Lanes a, Lanes b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

// x * 2^n where the result is normal; the low 9 bits of each lane of `n` hold the integer.
[[gnu::always_inline]] inline Lanes times_power_of_two(Lanes x, Lanes n) {
    const __m256i low = _mm256_slli_epi32(_mm256_castps_si256(n.low), 23);
    const __m256i high = _mm256_slli_epi32(_mm256_castps_si256(n.high), 23);
    return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.low), low)),
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x.high), high))};
}

// The first `count` lanes; the others are +0, and the memory behind them is not touched. 16 are
// meant to be known to the compiler.
[[gnu::always_inline]] inline Lanes load(const float *x, size_t count = 16) {
    if (count == 16) {
        return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)};
    }
    const Mask mask = mask_of((1U << count) - 1);
    return {_mm256_maskload_ps(x, mask.low), _mm256_maskload_ps(x + 8, mask.high)};
}
[[gnu::always_inline]] inline void store(Lanes x, float *y, size_t count = 16) {
    if (count == 16) {
        _mm256_storeu_ps(y, x.low);
        _mm256_storeu_ps(y + 8, x.high);
    } else {
        const Mask mask = mask_of((1U << count) - 1);
        _mm256_maskstore_ps(y, mask.low, x.low);
        _mm256_maskstore_ps(y + 8, mask.high, x.high);
    }
}

// Stores all 16 in memory without reading the line, and past the caches; y begins a line of 64
// bytes. Other threads see them behind finish_far_stores.
[[gnu::always_inline]] inline void store_far(Lanes x, float *y) {
    _mm256_stream_ps(y, x.low);
    _mm256_stream_ps(y + 8, x.high);
}
[[gnu::always_inline]] inline void finish_far_stores() {
    _mm_sfence();
}

// bf16 widened, and narrowed by cutting off the lower halves.
[[gnu::always_inline]] inline Lanes load_bf16(const uint16_t *x, size_t count = 16) {
    uint16_t padded[16]; // AVX2 has no mask for 16-bit values
    if (count != 16) {
        __builtin_memset(padded, 0, sizeof padded);
        __builtin_memcpy(padded, x, count * sizeof(uint16_t));
        x = padded;
    }
    const __m128i *from = reinterpret_cast<const __m128i *>(x);
    const __m256i low = _mm256_cvtepu16_epi32(_mm_loadu_si128(from));
    const __m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128(from + 1));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(low, 16)),
            _mm256_castsi256_ps(_mm256_slli_epi32(high, 16))};
}
[[gnu::always_inline]] inline void store_upper_halves(Lanes x, uint16_t *y, size_t count = 16) {
    const __m256i low = _mm256_srli_epi32(_mm256_castps_si256(x.low), 16);
    const __m256i high = _mm256_srli_epi32(_mm256_castps_si256(x.high), 16);
    // Packing works within each half of a register; the permutation puts the quarters in order.
    const __m256i bits = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
    if (count == 16) {
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(y), bits);
    } else {
        __builtin_memcpy(y, &bits, count * sizeof(uint16_t));
    }
}

// Eight values of the function below.
[[gnu::always_inline]] inline __m256 rounded_to_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i size = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
    const __m256i nan = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(0x7F800000));
    const __m256i normal = _mm256_cmpgt_epi32(size, _mm256_set1_epi32(0x007FFFFF));
    const __m256i kept = _mm256_and_si256(normal, _mm256_set1_epi32(-0x10000));
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_blendv_epi8(sum, quiet, nan), kept));
}
// Rounded to bf16 by C6, as f32. On the bits, so that the floating-point environment has no say.
[[gnu::always_inline]] inline Lanes rounded_to_bf16(Lanes x) {
    return {rounded_to_bf16(x.low), rounded_to_bf16(x.high)};
}

// The tree over the lanes of a sum (C4).
[[gnu::always_inline]] inline float sum_of(Lanes x) {
    const __m256 eight = _mm256_add_ps(x.low, x.high);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
// The largest lane; a zero may have either sign.
[[gnu::always_inline]] inline float largest_of(Lanes x) {
    const __m256 eight = _mm256_max_ps(x.low, x.high);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
[[gnu::always_inline]] inline float first_of(Lanes x) {
    return _mm256_cvtss_f32(x.low);
}

} // namespace stasis::kernels::STASIS_TABLE
