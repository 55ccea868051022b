// What products of integer weights (C8) need of AVX2: 8 outputs side by side, four of an output's
// terms in a word.
#pragma once

#include "runtime/kernels/avx2/vector.h"

namespace stasis::kernels::STASIS_TABLE {

struct Avx2Integers : Avx2 {
    using Ints = int32_t __attribute__((vector_size(32)));

    static constexpr bool kUnsigned = false; // whether the left operand of `dot` has to be
    static constexpr size_t kDotRows = 4;    // rows whose sums stay in registers

    // sum + the dot products of u, at most 63 or (has_sign) an int8, and the four int8 at `four`,
    // -127 to 127, the same for all lanes.
    template <bool has_sign>
    [[gnu::always_inline]] static inline Words dot(Words sum, Words u, const int8_t *four) {
        const Words x = broadcast(reinterpret_cast<const uint32_t *>(four));
        // Two products fill 16 bits: 2 * 128 * 127 is below 2^15.
        const Words pairs = has_sign
                                ? _mm256_maddubs_epi16(_mm256_abs_epi8(u), _mm256_sign_epi8(x, u))
                                : _mm256_maddubs_epi16(u, x);
        return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    // sum + the dot products of two 16-bit integers.
    static Words dot_pairs(Words sum, Words a, Words b) {
        return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
    }
    // The same with the two at `two` for all lanes.
    static Words dot_pairs_broadcast(Words sum, Words a, const int16_t *two) {
        return dot_pairs(sum, a, broadcast(reinterpret_cast<const uint32_t *>(two)));
    }
    // x * 2^shift for all lanes.
    template <int shift> static Words shifted(const int32_t *x) {
        return (Words)((Ints)broadcast(reinterpret_cast<const uint32_t *>(x)) << shift);
    }
    static Floats convert(Words x) { return _mm256_cvtepi32_ps(x); }
    static Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
    static Floats broadcast_float(const float *x) { return _mm256_broadcast_ss(x); }
    // The lower 16 bits of each word, an f16, as f32.
    static Floats lower_f16(Words x) {
        const Words kept = _mm256_and_si256(x, _mm256_set1_epi32(0xFFFF));
        const Words packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(kept, kept), 0xD8);
        return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
    }
    // 8 f16 as f32.
    static Floats load_f16(const uint8_t *from) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
    }
    // 2^(e - 128) of 8 bytes e; 0 where e is below 2.
    static Floats load_e8m0(const uint8_t *from) {
        const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i *>(from));
        const Words e = _mm256_cvtepu8_epi32(_mm_subs_epu8(bytes, _mm_set1_epi8(1)));
        return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
    }
    // The byte of the table for each byte of `at`, which are below 16.
    static Words look_up(const uint8_t (&table)[16], Words at) {
        const __m128i of = _mm_load_si128(reinterpret_cast<const __m128i *>(table));
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(of), at);
    }
};

} // namespace stasis::kernels::STASIS_TABLE
