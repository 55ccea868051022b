// The inner loop of matrix products (C1): a group of rows of packed x times a panel of packed
// weights.
#pragma once

#include "runtime/kernels/generic/panels/strip.h"

namespace stasis::kernels::STASIS_TABLE {

// Calls work<rows>() for the number of rows that a group has.
template <typename V, size_t most = V::kRows, typename Work>
[[gnu::always_inline]] inline void with_rows(size_t rows, const Work &work) {
    if (rows >= most) {
        work.template operator()<most>();
    } else if constexpr (most > 1) {
        with_rows<V, most - 1>(rows, work);
    }
}

inline void clear(float *x, size_t n) {
    __builtin_memset(x, 0, n * sizeof(float));
}

// A panel of `vectors` vectors of outputs, blocks of the rule begin at `w`; x of one group of rows;
// y += the products, block by block.
template <typename V, size_t rows, size_t vectors> struct Tile {
    using Floats = typename V::Floats;

    // Rows first .. first + count - 1 of the group. The sums of both chains of a block stay in
    // registers: the odd one has work while the even one waits for a sum. Those of the blocks
    // before lie in memory.
    template <size_t first, size_t count>
    [[gnu::always_inline]] static inline void
    multiply_rows(const uint32_t *x, const uint32_t *w, size_t blocks, float *y, size_t y_stride) {
        constexpr size_t kCount = count * vectors;
        alignas(64) float total[kCount][V::kLanes];
        unroll<kCount>([&]<size_t i>() {
            const float *from = y + (first + i / vectors) * y_stride + i % vectors * V::kLanes;
            V::store_floats(total[i], V::load_floats(from));
        });
        for (size_t block = 0; block < blocks; ++block) {
            Floats sum[2][kCount]; // even, odd
            unroll<kCount>([&]<size_t i>() { sum[0][i] = sum[1][i] = V::zero(); });
            unroll<2 * kSteps<V>>([&]<size_t i>() {
                constexpr size_t chain = i % 2, step = chain * kSteps<V> + i / 2;
                typename V::Words weights[vectors];
                unroll<vectors>([&]<size_t n>() {
                    weights[n] = V::load(w + (step * vectors + n) * V::kLanes);
                });
                unroll<count>([&]<size_t r>() {
                    const typename V::Words word = V::broadcast(x + step * rows + first + r);
                    unroll<vectors>([&]<size_t n>() {
                        Floats &to = sum[chain][r * vectors + n];
                        to = V::multiply_add(word, weights[n], to);
                    });
                });
            });
            unroll<kCount>([&]<size_t i>() {
                const Floats both = V::add(sum[0][i], sum[1][i]);
                V::store_floats(total[i], V::add(V::load_floats(total[i]), both));
            });
            asm volatile("" : "+m"(total)); // else gcc 12 keeps them in registers, and others not
            x += kWords<V> * rows;
            w += kWords<V> * vectors * V::kLanes;
        }
        unroll<kCount>([&]<size_t i>() {
            float *to = y + (first + i / vectors) * y_stride + i % vectors * V::kLanes;
            V::store_floats(to, V::load_floats(total[i]));
        });
    }

    [[gnu::flatten]] static void multiply(const uint32_t *x, const uint32_t *w, size_t blocks,
                                          float *y, size_t y_stride) {
        constexpr size_t kParts = (rows + V::kTileRows - 1) / V::kTileRows;
        unroll<kParts>([&]<size_t part>() {
            constexpr size_t first = part * V::kTileRows;
            constexpr size_t count = smaller(rows - first, V::kTileRows);
            multiply_rows<first, count>(x, w, blocks, y, y_stride);
        });
    }
};

// One group of rows times one panel: y += the products.
template <typename V, size_t rows>
void multiply_panel(const uint32_t *x, const uint32_t *panel, size_t vectors, size_t blocks,
                    float *y, size_t y_stride) {
    static_assert(V::kVectors == 2);
    if (vectors == V::kVectors) {
        Tile<V, rows, V::kVectors>::multiply(x, panel, blocks, y, y_stride);
    } else {
        Tile<V, rows, 1>::multiply(x, panel, blocks, y, y_stride);
    }
}

// The same where only `count` outputs of the panel exist.
template <typename V, size_t rows>
void multiply_edge(const uint32_t *x, const uint32_t *panel, size_t vectors, size_t blocks,
                   float *y, size_t y_stride, size_t count) {
    float edge[rows][V::kVectors * V::kLanes];
    for (size_t r = 0; r < rows; ++r) {
        __builtin_memcpy(edge[r], y + r * y_stride, count * sizeof(float));
    }
    multiply_panel<V, rows>(x, panel, vectors, blocks, edge[0], V::kVectors * V::kLanes);
    for (size_t r = 0; r < rows; ++r) {
        __builtin_memcpy(y + r * y_stride, edge[r], count * sizeof(float));
    }
}

} // namespace stasis::kernels::STASIS_TABLE
