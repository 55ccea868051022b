// Turning 16 rows of 16 dwords in registers.
#pragma once

#include "runtime/kernels/avx512/intrinsics.h"

#include <cstddef>

namespace stasis::kernels::amx {

// Row i of `rows` becomes column i: four rounds of merging pairs of rows, of lanes of 32, 64, 128
// and 256 bits.
[[gnu::always_inline]] inline void transpose(__m512i (&rows)[16]) {
    __m512i t[16];
#pragma GCC unroll 8
    for (size_t i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < 16; i += 4) {
        rows[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        rows[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        rows[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        rows[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
        t[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xDD);
        t[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xDD);
    }
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; ++i) {
        rows[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        rows[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
    }
}

} // namespace stasis::kernels::amx
