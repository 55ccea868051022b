// What products of integer weights (C8) need of AVX-512: 16 outputs side by side, four of an
// output's terms in a word.
#pragma once

#include "runtime/kernels/avx512/vector.h"

namespace stasis::kernels::STASIS_TABLE {

struct Avx512Integers : Avx512 {
    using Ints = int32_t __attribute__((vector_size(64)));

    static constexpr bool kUnsigned = false; // whether the left operand of `dot` has to be
    static constexpr size_t kDotRows = 8;    // rows whose sums stay in registers

    // sum + the dot products of u, at most 63 or (has_sign) an int8, and the four int8 at `four`,
    // -127 to 127, the same for all lanes.
    template <bool has_sign>
    [[gnu::always_inline]] static inline Words dot(Words sum, Words u, const int8_t *four) {
        Words x = broadcast(reinterpret_cast<const uint32_t *>(four));
        if (has_sign) {
            x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(u), _mm512_setzero_si512(), x);
            u = _mm512_abs_epi8(u);
        }
        // Two products fill 16 bits: 2 * 128 * 127 is below 2^15.
        const Words pairs = _mm512_maddubs_epi16(u, x);
        return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
    }
    // sum + the dot products of two 16-bit integers.
    static Words dot_pairs(Words sum, Words a, Words b) {
        return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
    }
    // The same with the two at `two` for all lanes.
    static Words dot_pairs_broadcast(Words sum, Words a, const int16_t *two) {
        return dot_pairs(sum, a, broadcast(reinterpret_cast<const uint32_t *>(two)));
    }
    // x * 2^shift for all lanes.
    template <int shift> static Words shifted(const int32_t *x) {
        return (Words)((Ints)broadcast(reinterpret_cast<const uint32_t *>(x)) << shift);
    }
    static Floats convert(Words x) { return _mm512_cvtepi32_ps(x); }
    static Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
    static Floats broadcast_float(const float *x) { return _mm512_set1_ps(*x); }
    // The lower 16 bits of each word, an f16, as f32.
    static Floats lower_f16(Words x) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x)); }
    // 16 f16 as f32.
    static Floats load_f16(const uint8_t *from) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
    }
    // 2^(e - 128) of 16 bytes e; 0 where e is below 2.
    static Floats load_e8m0(const uint8_t *from) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from));
        const Words e = _mm512_cvtepu8_epi32(_mm_subs_epu8(bytes, _mm_set1_epi8(1)));
        return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
    }
    // The byte of the table for each byte of `at`, which are below 16.
    static Words look_up(const uint8_t (&table)[16], Words at) {
        const __m128i of = _mm_load_si128(reinterpret_cast<const __m128i *>(table));
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(of), at);
    }
};

} // namespace stasis::kernels::STASIS_TABLE
