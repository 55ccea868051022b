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
    static constexpr size_t kPairs = 1;     // pairs (even k, odd k) that one step takes
    static constexpr size_t kRows = 6;      // of a group of packed x, and the most by one strip
    static constexpr size_t kCodedRows = 4; // by one strip of coded weights (coded.h)
    // Rows up to which strips of coded weights are read faster with nothing fetched ahead (Zen 4).
    static constexpr size_t kAlone = 0;
    static constexpr size_t kTileRows = 3; // a tile: the sums of both chains, weights, 1 activation
    static constexpr size_t kVectors = 2;  // of a panel
    static constexpr size_t kGroupBlocks = kLanes; // of one row of x (row.h): lanes are blocks
    static constexpr size_t kAhead = 512; // elements from a load to what is prefetched then
    // The cache level that it is prefetched into: the second. Into the first it was slower (Zen 4).
    static constexpr int kNear = 2;

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
    // One step of a chain: sum + x * w, x and w as `even` and `odd` leave them.
    static Floats multiply_add(Words x, Words w, Floats sum) {
        return _mm256_fmadd_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(w), sum);
    }
    // The same with the word at x for every output.
    static Floats multiply_add_broadcast(const uint32_t *x, Words w, Floats sum) {
        return multiply_add(broadcast(x), w, sum);
    }
    // The even terms of kPairs pairs, and the odd ones, as f32.
    static Words even(const Words *pairs) { return _mm256_slli_epi32(pairs[0], 16); }
    static Words odd(const Words *pairs) {
        return _mm256_and_si256(pairs[0], _mm256_set1_epi32(static_cast<int>(0xFFFF0000U)));
    }

    // Of coded weights (coded.h): 16 bytes in each half; the byte of each code, which is in the low
    // bits; codes from the high bits; the first eight bytes of each half of two vectors in turn,
    // and the last eight.
    static Words each_16(const uint8_t *from) {
        return _mm256_broadcastsi128_si256(
            _mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
    }
    static Words look_up(Words bytes, Words codes) {
        return _mm256_shuffle_epi8(bytes, _mm256_and_si256(codes, _mm256_set1_epi8(15)));
    }
    static Words high_codes(Words codes) { return _mm256_srli_epi16(codes, 4); }
    static Words first_bytes(Words a, Words b) { return _mm256_unpacklo_epi8(a, b); }
    static Words last_bytes(Words a, Words b) { return _mm256_unpackhi_epi8(a, b); }
    // The bytes of which these two would give halves a and b below 256.
    static Words bytes(Words a, Words b) { return _mm256_packus_epi16(a, b); }

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
    // The same for kLanes rows of pairs, as `even` and `odd` take them.
    [[gnu::always_inline]] static inline void turn_pairs(Words (&v)[kLanes]) { turn(v); }
};

} // namespace stasis::kernels::STASIS_TABLE
