// What the panels need of AVX2 with FMA: 8 outputs side by side, a term of the block rule at a
// time.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/generic/panels/unroll.h"

namespace stasis::kernels::STASIS_TABLE {

struct Avx2 {
    using Words = __m256i;
    using Floats = __m256;

    static constexpr size_t kLanes = 8;
    static constexpr size_t kPairs = 1; // pairs (even k, odd k) that one step takes
    static constexpr size_t kRows = 6;  // a tile: 12 accumulators, 2 weights, 1 activation
    static constexpr size_t kVectors = 2;
    static constexpr size_t kAhead = 256; // elements from a load to what is prefetched then
    static constexpr int kNear = 3;       // into the first level of caches

    static Words load(const void *from) {
        return _mm256_loadu_si256(static_cast<const __m256i *>(from));
    }
    // bf16 values, each in a word of its own.
    static Words load_wide(const uint16_t *from) {
        return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
    }
    static void store(void *to, Words words) {
        _mm256_storeu_si256(static_cast<__m256i *>(to), words);
    }
    static Floats load_floats(const float *from) { return _mm256_loadu_ps(from); }
    static void store_floats(float *to, Floats x) { _mm256_storeu_ps(to, x); }
    static Floats zero() { return _mm256_setzero_ps(); }
    static Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }

    // The same word of x for every output.
    static Words broadcast(const uint32_t *x) { return _mm256_set1_epi32(static_cast<int>(*x)); }
    // The same four words of x in each half.
    static Words repeat_quad(const uint32_t *x) {
        return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i *>(x)));
    }
    // v[q] has four blocks in each of two rows; becomes v[block] with one lane for each row of all.
    [[gnu::always_inline]] static inline void turn_quads(Floats (&v)[4]) {
        const Words by_block = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        __m256d pairs[4]; // of rows, by block
        unroll<4>([&]<size_t q>() {
            pairs[q] = _mm256_castps_pd(_mm256_permutevar8x32_ps(v[q], by_block));
        });
        const __m256d even01 = _mm256_unpacklo_pd(pairs[0], pairs[1]); // blocks 0 and 2
        const __m256d odd01 = _mm256_unpackhi_pd(pairs[0], pairs[1]);
        const __m256d even23 = _mm256_unpacklo_pd(pairs[2], pairs[3]);
        const __m256d odd23 = _mm256_unpackhi_pd(pairs[2], pairs[3]);
        v[0] = _mm256_castpd_ps(_mm256_permute2f128_pd(even01, even23, 0x20));
        v[1] = _mm256_castpd_ps(_mm256_permute2f128_pd(odd01, odd23, 0x20));
        v[2] = _mm256_castpd_ps(_mm256_permute2f128_pd(even01, even23, 0x31));
        v[3] = _mm256_castpd_ps(_mm256_permute2f128_pd(odd01, odd23, 0x31));
    }
    // One step of a chain: sum + x * w, x and w as `even` and `odd` leave them.
    static Floats multiply_add(Words x, Words w, Floats sum) {
        return _mm256_fmadd_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(w), sum);
    }
    // The even terms of kPairs pairs, and the odd ones, as f32.
    static Words even(const Words *pairs) { return _mm256_slli_epi32(pairs[0], 16); }
    static Words odd(const Words *pairs) {
        return _mm256_and_si256(pairs[0], _mm256_set1_epi32(static_cast<int>(0xFFFF0000U)));
    }

    // The word of one chain from kPairs wide values.
    static Words join(const Words *wide) { return _mm256_slli_epi32(wide[0], 16); }

    // Word i of vector j becomes word j of vector i. First whole halves change places, then words
    // within halves.
    [[gnu::always_inline]] static inline void turn(Words (&v)[kLanes]) {
        Words t[kLanes]; // t[4 h + i]: half h of the rows i, 4 + i
        unroll<4>([&]<size_t i>() {
            t[i] = _mm256_permute2x128_si256(v[i], v[4 + i], 0x20);
            t[4 + i] = _mm256_permute2x128_si256(v[i], v[4 + i], 0x31);
        });
        unroll<2>([&]<size_t h>() {
            const Words low01 = _mm256_unpacklo_epi32(t[4 * h], t[4 * h + 1]); // words 0 and 1
            const Words low23 = _mm256_unpacklo_epi32(t[4 * h + 2], t[4 * h + 3]);
            const Words high01 = _mm256_unpackhi_epi32(t[4 * h], t[4 * h + 1]);
            const Words high23 = _mm256_unpackhi_epi32(t[4 * h + 2], t[4 * h + 3]);
            v[4 * h] = _mm256_unpacklo_epi64(low01, low23);
            v[4 * h + 1] = _mm256_unpackhi_epi64(low01, low23);
            v[4 * h + 2] = _mm256_unpacklo_epi64(high01, high23);
            v[4 * h + 3] = _mm256_unpackhi_epi64(high01, high23);
        });
    }
};

} // namespace stasis::kernels::STASIS_TABLE
