// What the panels need of AVX-512: 16 outputs side by side, a term of the block rule at a time.
#pragma once

// gcc 12 warns of its own intrinsics (GCC bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/panels/unroll.h"

namespace stasis::kernels::STASIS_TABLE {

struct Avx512 {
    using Words = __m512i;
    using Floats = __m512;

    static constexpr size_t kLanes = 16;
    static constexpr size_t kPairs = 1; // pairs (even k, odd k) that one step takes
    static constexpr size_t kRows = 8;  // a tile: 24 accumulators, 3 weights, 1 activation
    static constexpr size_t kVectors = 3;

    static constexpr size_t kAhead = 256; // elements from a load to what is prefetched then

    static constexpr int kNear = 3; // into the first level of caches

    static Words load(const void *from) { return _mm512_loadu_si512(from); }
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
    // The even terms of kPairs pairs, and the odd ones, as f32.
    static Words even(const Words *pairs) { return _mm512_slli_epi32(pairs[0], 16); }
    static Words odd(const Words *pairs) {
        return _mm512_and_si512(pairs[0], _mm512_set1_epi32(static_cast<int>(0xFFFF0000U)));
    }

    // Word i of vector j becomes word j of vector i: words, then pairs of words within quarters,
    // then quarters at distance 1 and 2.
    [[gnu::always_inline]] static inline void turn(Words (&v)[kLanes]) {
        Words t[kLanes];
        unroll<8>([&]<size_t i>() {
            t[2 * i] = _mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]);
            t[2 * i + 1] = _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1]);
        });
        unroll<4>([&]<size_t i>() {
            v[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
            v[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
            v[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
            v[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
        });
        unroll<4>([&]<size_t i>() { // v[4 g + i]: rows 4 g .. 4 g + 3, quarter q holds word 4 q + i
            const Words low01 = _mm512_shuffle_i32x4(v[i], v[4 + i], 0x88); // quarters 0, 2
            const Words high01 = _mm512_shuffle_i32x4(v[i], v[4 + i], 0xDD);
            const Words low23 = _mm512_shuffle_i32x4(v[8 + i], v[12 + i], 0x88);
            const Words high23 = _mm512_shuffle_i32x4(v[8 + i], v[12 + i], 0xDD);
            t[i] = _mm512_shuffle_i32x4(low01, low23, 0x88);
            t[4 + i] = _mm512_shuffle_i32x4(high01, high23, 0x88);
            t[8 + i] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
            t[12 + i] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
        });
        unroll<kLanes>([&]<size_t i>() { v[i] = t[i]; });
    }
};

} // namespace stasis::kernels::STASIS_TABLE
