// One row of x of a depth that row.h leaves to strips (C1), as those whose x does not stay in the
// first level of caches: strips of 16 rows of weights, as product.h has them, but turned as two
// halves whose lanes are the rows and their chains in turn. A line takes three instructions to be
// turned, where lanes that are 16 rows take four: 1.00 to 1.16 times as fast at depths 5632 and
// 6912, 0.97 to 1.11 at 8192 (Zen 4, mapped weights).
#pragma once

#include "runtime/kernels/avx512bf16/vector.h"
#include "runtime/kernels/generic/panels/product.h"

namespace stasis::kernels::avx512bf16 {

// Whether one row of this depth is for this product.
inline bool is_deep(size_t depth) {
    return depth % kBlock == 0 && row_groups<Avx512Bf16>(depth) == 0 &&
           depth * sizeof(uint16_t) <= kScratchBytes;
}

// Of two rows a and b the steps first, first + 2, ...: of each step the words of both chains, a's
// and then b's.
constexpr Halves every_second_step(size_t first) {
    Halves halves{};
    for (size_t word = 0; word < 16; ++word) {
        const size_t step = word / 4 * 2 + first, of_b = word / 2 % 2, odd = word % 2;
        const auto k = static_cast<uint16_t>(4 * step + odd + 32 * of_b);
        halves.from[2 * word + 1] = k;
        halves.from[2 * word] = k + 2;
    }
    return halves;
}

// Returns the sums of both chains of a block of eight rows that are `stride` apart. x has the words
// of both chains of a step in turn.
[[gnu::always_inline]] inline __m512 sum_eight(const uint16_t *w, size_t stride,
                                               const uint32_t *x) {
    using V = Avx512Bf16;
    static constexpr Halves kEven = every_second_step(0), kOdd = every_second_step(1);
    const V::Words order[] = {V::load(kEven.from), V::load(kOdd.from)};
    V::Words lines[8], steps[8];
    unroll<8>([&]<size_t n>() { lines[n] = V::load(w + n * stride); });
    unroll<2>([&]<size_t odd>() {
        V::Words pairs[4]; // rows 2 n and 2 n + 1; quarter q: step 2 q + odd
        unroll<4>([&]<size_t n>() {
            pairs[n] = _mm512_permutex2var_epi16(lines[2 * n], order[odd], lines[2 * n + 1]);
        });
        const V::Words low[] = {_mm512_shuffle_i32x4(pairs[0], pairs[1], 0x44),
                                _mm512_shuffle_i32x4(pairs[2], pairs[3], 0x44)};
        const V::Words high[] = {_mm512_shuffle_i32x4(pairs[0], pairs[1], 0xEE),
                                 _mm512_shuffle_i32x4(pairs[2], pairs[3], 0xEE)};
        steps[odd] = _mm512_shuffle_i32x4(low[0], low[1], 0x88);
        steps[2 + odd] = _mm512_shuffle_i32x4(low[0], low[1], 0xDD);
        steps[4 + odd] = _mm512_shuffle_i32x4(high[0], high[1], 0x88);
        steps[6 + odd] = _mm512_shuffle_i32x4(high[0], high[1], 0xDD);
    });
    V::Floats sum = V::zero();
    unroll<8>([&]<size_t step>() {
        long long both;
        __builtin_memcpy(&both, x + 2 * step, sizeof(both));
        sum = V::multiply_add(_mm512_set1_epi64(both), steps[step], sum);
    });
    return sum;
}

// kLanes outputs from `output` on; x as sum_eight takes it.
[[gnu::flatten]] inline void multiply_deep_strip(const Matmul &task, size_t output,
                                                 const uint32_t *x) {
    using V = Avx512Bf16;
    const size_t stride = task.w_stride;
    const uint16_t *w = task.w + output * stride;
    const Strip<V> strip = strip_at<V>(task, output);
    V::Floats total[2] = {V::zero(), V::zero()};
    for (size_t k = 0; k < task.depth; k += kBlock, x += kWords<V>) {
        fetch_rows<V>(strip, task, k, V::kLanes);
        unroll<2>([&]<size_t half>() {
            const V::Floats sum = sum_eight(w + half * 8 * stride + k, stride, x);
            total[half] = V::add(total[half], V::add(sum, _mm512_permute_ps(sum, 0xB1)));
        });
    }
    const V::Words even =
        _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    V::store_floats(task.y + output, _mm512_permutex2var_ps(total[0], even, total[1]));
}

// The whole product. Expects one row of x of a depth that is_deep.
inline void multiply_deep_row(const Matmul &task) {
    using V = Avx512Bf16;
    const V::Words in_turn = _mm512_set_epi32(15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0);
    const auto *packed = static_cast<const uint32_t *>(task.packed);
    auto *x = static_cast<uint32_t *>(task.scratch);
    for (size_t at = 0; at < task.depth / 2; at += kWords<V>) {
        V::store(x + at, _mm512_permutexvar_epi32(in_turn, V::load(packed + at)));
    }
    size_t output = 0;
    for (; output + V::kLanes <= task.outputs; output += V::kLanes) {
        multiply_deep_strip(task, output, x);
    }
    if (output < task.outputs) {
        multiply_strip<V, 1>(task, output);
    }
}

} // namespace stasis::kernels::avx512bf16
