// What the panels need of AVX-512: 16 outputs side by side, a term of the block rule at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/avx512/intrinsics.h"
#include "runtime/kernels/generic/panels/unroll.h"

// To the end of the file that includes this: a flattened function bears the warnings of what was
// inlined into it (GCC bug 105593, as in intrinsics.h).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace stasis::kernels::STASIS_TABLE {

struct Avx512 {
    using Words = __m512i;
    using Floats = __m512;

    static constexpr size_t kLanes = 16;
    static constexpr size_t kPairs = 1;     // pairs (even k, odd k) that one step takes
    static constexpr size_t kRows = 8;      // of a group of packed x, and the most by one strip
    static constexpr size_t kCodedRows = 8; // by one strip of coded weights (coded.h)
    // Rows up to which strips of coded weights are read faster with nothing fetched ahead (Zen 4).
    static constexpr size_t kAlone = 1;
    static constexpr size_t kTileRows = 4; // a tile: the sums of both chains, weights, 1 activation
    static constexpr size_t kVectors = 2;  // of a panel
    static constexpr size_t kGroupBlocks = kLanes; // of one row of x (row.h): lanes are blocks

    static constexpr size_t kAhead = 512; // elements from a load to what is prefetched then

    // The cache level that it is prefetched into: the second. Into the first it was slower (Zen 4).
    static constexpr int kNear = 2;

    static Words load(const void *from) { return _mm512_loadu_si512(from); }
    // bf16 values, each in a word of its own.
    static Words load_wide(const uint16_t *from) {
        return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
    }
    static void store(void *to, Words words) { _mm512_storeu_si512(to, words); }
    static Floats load_floats(const float *from) { return _mm512_loadu_ps(from); }
    static void store_floats(float *to, Floats x) { _mm512_storeu_ps(to, x); }
    static Floats zero() { return _mm512_setzero_ps(); }
    static Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }

    // The same word of x for every output.
    static Words broadcast(const uint32_t *x) { return _mm512_set1_epi32(static_cast<int>(*x)); }
    // One step of a chain: sum + x * w, x and w as `even` and `odd` leave them.
    static Floats multiply_add(Words x, Words w, Floats sum) {
        return _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(w), sum);
    }
    // The same with the word at x for every output.
    static Floats multiply_add_broadcast(const uint32_t *x, Words w, Floats sum) {
        return multiply_add(broadcast(x), w, sum);
    }
    // The even terms of kPairs pairs, and the odd ones, as f32.
    static Words even(const Words *pairs) { return _mm512_slli_epi32(pairs[0], 16); }
    static Words odd(const Words *pairs) {
        return _mm512_and_si512(pairs[0], _mm512_set1_epi32(static_cast<int>(0xFFFF0000U)));
    }

    // Of coded weights (coded.h): 16 bytes in each quarter; the byte of each code, which is in the
    // low bits; codes from the high bits; the first eight bytes of each quarter of two vectors in
    // turn, and the last eight.
    static Words each_16(const uint8_t *from) {
        return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
    }
    static Words look_up(Words bytes, Words codes) {
        return _mm512_shuffle_epi8(bytes, _mm512_and_si512(codes, _mm512_set1_epi8(15)));
    }
    static Words high_codes(Words codes) { return _mm512_srli_epi16(codes, 4); }
    static Words first_bytes(Words a, Words b) { return _mm512_unpacklo_epi8(a, b); }
    static Words last_bytes(Words a, Words b) { return _mm512_unpackhi_epi8(a, b); }
    // The bytes of which these two would give halves a and b below 256.
    static Words bytes(Words a, Words b) { return _mm512_packus_epi16(a, b); }

    // The word of one chain from kPairs wide values.
    static Words join(const Words *wide) { return _mm512_slli_epi32(wide[0], 16); }

    // Word i of vector j becomes word j of vector i.
    [[gnu::always_inline]] static inline void turn(Words (&v)[kLanes]) {
        turn_by(
            v, [](Words a, Words b) { return _mm512_unpacklo_epi32(a, b); },
            [](Words a, Words b) { return _mm512_unpackhi_epi32(a, b); });
    }
    // The same for kLanes rows of pairs, as `even` and `odd` take them.
    [[gnu::always_inline]] static inline void turn_pairs(Words (&v)[kLanes]) { turn(v); }

  protected:
    // First whole quarters change places, then words within quarters, so that the first results are
    // there before the last ones are begun. low(a, b) has the words 0 and 1 of the quarters of a
    // and b: a's, b's, a's, b's; high(a, b) the words 2 and 3.
    template <typename Low, typename High>
    [[gnu::always_inline]] static inline void turn_by(Words (&v)[kLanes], const Low &low,
                                                      const High &high) {
        Words t[kLanes]; // t[4 q + i]: quarter q of the rows i, 4 + i, 8 + i, 12 + i
        unroll<4>([&]<size_t i>() {
            const Words low01 = _mm512_shuffle_i32x4(v[i], v[4 + i], 0x44); // quarters 0 and 1
            const Words low23 = _mm512_shuffle_i32x4(v[i], v[4 + i], 0xEE);
            const Words high01 = _mm512_shuffle_i32x4(v[8 + i], v[12 + i], 0x44);
            const Words high23 = _mm512_shuffle_i32x4(v[8 + i], v[12 + i], 0xEE);
            t[i] = _mm512_shuffle_i32x4(low01, high01, 0x88);
            t[4 + i] = _mm512_shuffle_i32x4(low01, high01, 0xDD);
            t[8 + i] = _mm512_shuffle_i32x4(low23, high23, 0x88);
            t[12 + i] = _mm512_shuffle_i32x4(low23, high23, 0xDD);
        });
        unroll<4>([&]<size_t q>() {
            const Words low01 = low(t[4 * q], t[4 * q + 1]),
                        low23 = low(t[4 * q + 2], t[4 * q + 3]);
            const Words high01 = high(t[4 * q], t[4 * q + 1]);
            const Words high23 = high(t[4 * q + 2], t[4 * q + 3]);
            v[4 * q] = _mm512_unpacklo_epi64(low01, low23);
            v[4 * q + 1] = _mm512_unpackhi_epi64(low01, low23);
            v[4 * q + 2] = _mm512_unpacklo_epi64(high01, high23);
            v[4 * q + 3] = _mm512_unpackhi_epi64(high01, high23);
        });
    }
};

} // namespace stasis::kernels::STASIS_TABLE
