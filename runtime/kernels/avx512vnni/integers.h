// The same with the dot products of VNNI, whose left operands are unsigned.
#pragma once

#include "runtime/kernels/avx512/integers.h"

namespace stasis::kernels::STASIS_TABLE {

struct Avx512Vnni : Avx512Integers {
    static constexpr bool kUnsigned = true;

    // These broadcast in assembly, because gcc 12 does it by an instruction of its own, which costs
    // a tenth of a product of many rows (Zen 4).
    template <bool> static Words dot(Words sum, Words u, const int8_t *four) {
        asm("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(u), "m"(*reinterpret_cast<const uint32_t *>(four)));
        return sum;
    }
    static Words dot_pairs_broadcast(Words sum, Words a, const int16_t *two) {
        asm("vpdpwssd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(a), "m"(*reinterpret_cast<const uint32_t *>(two)));
        return sum;
    }
    template <int shift> static Words shifted(const int32_t *x) {
        Words product;
        asm("vpslld %2, %1%{1to16%}, %0" : "=v"(product) : "m"(*x), "i"(shift));
        return product;
    }
    static Words dot_pairs(Words sum, Words a, Words b) { return _mm512_dpwssd_epi32(sum, a, b); }
};

} // namespace stasis::kernels::STASIS_TABLE
