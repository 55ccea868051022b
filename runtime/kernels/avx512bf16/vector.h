// AVX-512 with VDPBF16PS: panels with 16 outputs side by side, two terms at a time.
// The instruction adds the products of the high halves first, then those of the low halves, each
// with one rounding and flushing whatever MXCSR says (Intel SDM, volume 2, VDPBF16PS). So a word
// that holds {high: k, low: k + 2} takes a chain of the block rule two terms further.
#pragma once

#include "runtime/kernels/avx512/vector.h"

namespace stasis::kernels::avx512bf16 {

// Halves of two vectors, as VPERMT2W counts them: those of the second from 32 on.
struct Halves {
    alignas(64) uint16_t from[32];
};

// Of every quarter of two vectors a and b the words {high: k, low: k + 2} of a and of b, then
// {high: k + 1, low: k + 3} of a and of b, where k is the quarter's half `first`.
constexpr Halves pairs_from(size_t first) {
    Halves halves{};
    for (size_t i = 0; i < 32; ++i) {
        const size_t word = i / 2 % 4, of_b = word % 2, odd = word / 2, low = (i + 1) % 2;
        halves.from[i] = static_cast<uint16_t>(i / 8 * 8 + first + odd + 2 * low + 32 * of_b);
    }
    return halves;
}

// Of two blocks a and b steps of both chains, `first` and the three that follow: in each quarter
// two steps of one chain (even, even, odd, odd), of a, b, a, b.
constexpr Halves steps_from(size_t first) {
    Halves halves{};
    for (size_t word = 0; word < 16; ++word) {
        const size_t odd = word / 8, step = first + word % 8 / 2, of_b = word % 2;
        const auto k = static_cast<uint16_t>(4 * step + odd + 32 * of_b);
        halves.from[2 * word + 1] = k;
        halves.from[2 * word] = k + 2;
    }
    return halves;
}

// Of a block the words {high: k, low: k + 2} of its even chain, then those of its odd one.
constexpr Halves chain_halves() {
    Halves halves{};
    for (size_t word = 0; word < 16; ++word) {
        const size_t k = word % 8 * 4 + word / 8;
        halves.from[2 * word] = static_cast<uint16_t>(k + 2);
        halves.from[2 * word + 1] = static_cast<uint16_t>(k);
    }
    return halves;
}

struct Avx512Bf16 : Avx512 {
    static constexpr size_t kPairs = 2;
    static constexpr size_t kAlone = 3;

    static Floats multiply_add(Words x, Words w, Floats sum) {
        return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
    }
    // In assembly, because gcc 12 broadcasts by an instruction of its own. Worth it where a word
    // meets one vector of outputs: 2 to 8 rows are 1.02 to 1.12 times as fast (Zen 4), and a tile,
    // which broadcasts a word once for two vectors, 0.91 to 0.98.
    static Floats multiply_add_broadcast(const uint32_t *x, Words w, Floats sum) {
        asm("vdpbf16ps %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*x));
        return sum;
    }
    // turn_pairs leaves the even terms of two pairs, then the odd ones.
    static Words even(const Words *pairs) { return pairs[0]; }
    static Words odd(const Words *pairs) { return pairs[1]; }
    [[gnu::always_inline]] static inline void turn_pairs(Words (&v)[kLanes]) {
        static constexpr Halves kLow = pairs_from(0), kHigh = pairs_from(4);
        const Words low = load(kLow.from), high = load(kHigh.from);
        turn_by(
            v, [&](Words a, Words b) { return _mm512_permutex2var_epi16(a, low, b); },
            [&](Words a, Words b) { return _mm512_permutex2var_epi16(a, high, b); });
    }

    // One row of x (row.h): lanes are both chains of eight blocks, whose lines take three
    // instructions each to be turned, where those of sixteen take four. Less waits between a line
    // that was loaded and those that are to be: 1.2 to 1.6 times as fast (Zen 4, mapped weights).
    static constexpr size_t kGroupBlocks = 8;
    static constexpr size_t chain_of(size_t lane) { return lane / 4 % 2; }
    static constexpr size_t block_of(size_t lane) { return lane / 8 * 4 + lane % 4; }

    // Stores the sums of eight blocks; see row.h.
    template <typename Block>
    [[gnu::always_inline]] static inline void sum_chains(const uint32_t *x, const Block &block,
                                                         float *sums) {
        static constexpr Halves kFirst = steps_from(0), kLast = steps_from(4);
        const Words first = load(kFirst.from), last = load(kLast.from);
        Words lines[kGroupBlocks], steps[kGroupBlocks];
        unroll<kGroupBlocks>([&]<size_t n>() {
            lines[n] = load(block(n));
            asm volatile("" : "+v"(lines[n])); // keeps the loads in this order, as in row.h
        });
        Words pairs[2][4]; // [steps 0 .. 3, 4 .. 7][blocks 2 n and 2 n + 1]
        unroll<4>([&]<size_t n>() {
            pairs[0][n] = _mm512_permutex2var_epi16(lines[2 * n], first, lines[2 * n + 1]);
            pairs[1][n] = _mm512_permutex2var_epi16(lines[2 * n], last, lines[2 * n + 1]);
        });
        unroll<2>([&]<size_t half>() {
            const Words *at = pairs[half];
            Words *to = steps + 4 * half;
            const Words low[] = {_mm512_unpacklo_epi64(at[0], at[1]),
                                 _mm512_unpacklo_epi64(at[2], at[3])};
            const Words high[] = {_mm512_unpackhi_epi64(at[0], at[1]),
                                  _mm512_unpackhi_epi64(at[2], at[3])};
            to[0] = _mm512_shuffle_i32x4(low[0], low[1], 0x88);
            to[1] = _mm512_shuffle_i32x4(high[0], high[1], 0x88);
            to[2] = _mm512_shuffle_i32x4(low[0], low[1], 0xDD);
            to[3] = _mm512_shuffle_i32x4(high[0], high[1], 0xDD);
        });
        Floats sum = zero();
        unroll<kGroupBlocks>(
            [&]<size_t step>() { sum = multiply_add(load(x + step * kLanes), steps[step], sum); });
        const Floats even = _mm512_shuffle_f32x4(sum, sum, 0x88);
        const Floats odd = _mm512_shuffle_f32x4(sum, sum, 0xDD);
        _mm256_storeu_ps(sums, _mm512_castps512_ps256(add(even, odd)));
    }

    // A block of one row as the words of its even chain, then those of its odd one.
    static Words chains(const uint16_t *block) {
        static constexpr Halves kOrder = chain_halves();
        return _mm512_permutexvar_epi16(load(kOrder.from), load(block));
    }

    static Words join(const Words *wide) {
        return _mm512_or_si512(_mm512_slli_epi32(wide[0], 16), wide[1]);
    }
};

} // namespace stasis::kernels::avx512bf16
