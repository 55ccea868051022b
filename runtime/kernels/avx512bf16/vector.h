// AVX-512 with VDPBF16PS: panels with 16 outputs side by side, two terms at a time.
// The instruction adds the products of the high halves first, then those of the low halves, each
// with one rounding and flushing whatever MXCSR says (Intel SDM, volume 2, VDPBF16PS). So a word
// that holds {high: k, low: k + 2} takes a chain of the block rule two terms further.
#pragma once

#include "runtime/kernels/avx512/vector.h"

namespace stasis::kernels::avx512bf16 {

struct Avx512Bf16 : Avx512 {
    static constexpr size_t kPairs = 2;

    static Floats multiply_add(Words x, Words w, Floats sum) {
        return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
    }
    static Words even(const Words *pairs) {
        return _mm512_mask_blend_epi16(0x55555555, _mm512_slli_epi32(pairs[0], 16), pairs[1]);
    }
    static Words odd(const Words *pairs) {
        return _mm512_mask_blend_epi16(0x55555555, pairs[0], _mm512_srli_epi32(pairs[1], 16));
    }
    static Words join(const Words *wide) {
        return _mm512_or_si512(_mm512_slli_epi32(wide[0], 16), wide[1]);
    }
};

} // namespace stasis::kernels::avx512bf16
