// The same with the dot products of VNNI, whose left operands are unsigned.
#pragma once

#include "runtime/kernels/avx512/integers.h"

namespace stasis::kernels::STASIS_TABLE {

struct Avx512Vnni : Avx512Integers {
    static constexpr bool kUnsigned = true;

    template <bool> static Words dot(Words sum, Words u, Words x) {
        return _mm512_dpbusd_epi32(sum, u, x);
    }
    static Words dot_pairs(Words sum, Words a, Words b) { return _mm512_dpwssd_epi32(sum, a, b); }
};

} // namespace stasis::kernels::STASIS_TABLE
