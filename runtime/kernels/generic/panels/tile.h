// The inner loop of matrix products (C1): a group of rows of packed x times a panel of packed
// weights. A tile of sums stays in registers for a chain of a block; between blocks it lies in y.
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
    static constexpr size_t kCount = rows * vectors;

    // One chain of a block.
    [[gnu::always_inline]] static inline void chain(const uint32_t *x, const uint32_t *w,
                                                    Floats (&sum)[kCount]) {
        unroll<kCount>([&]<size_t i>() { sum[i] = V::zero(); });
#pragma GCC unroll 1
        for (size_t step = 0; step < kSteps<V>; ++step) {
            typename V::Words weights[vectors];
            unroll<vectors>([&]<size_t n>() { weights[n] = V::load(w + n * V::kLanes); });
            unroll<rows>([&]<size_t r>() {
                const typename V::Words word = V::broadcast(x + r);
                unroll<vectors>([&]<size_t n>() {
                    constexpr size_t at = r * vectors + n;
                    sum[at] = V::multiply_add(word, weights[n], sum[at]);
                });
            });
            x += rows;
            w += vectors * V::kLanes;
        }
    }

    [[gnu::flatten]] static void multiply(const uint32_t *x, const uint32_t *w, size_t blocks,
                                          float *y, size_t y_stride) {
        for (size_t block = 0; block < blocks; ++block) {
            alignas(64) float even[kCount][V::kLanes]; // while registers hold the odd chain
            Floats sum[kCount];
            chain(x, w, sum);
            unroll<kCount>([&]<size_t i>() { V::store_floats(even[i], sum[i]); });
            chain(x + kSteps<V> * rows, w + kSteps<V> * vectors * V::kLanes, sum);
            unroll<kCount>([&]<size_t i>() {
                float *to = y + i / vectors * y_stride + i % vectors * V::kLanes;
                const Floats both = V::add(V::load_floats(even[i]), sum[i]);
                V::store_floats(to, V::add(V::load_floats(to), both));
            });
            x += kWords<V> * rows;
            w += kWords<V> * vectors * V::kLanes;
        }
    }
};

// Vectors of the next panel when `left` are left: no panel of one vector after full ones.
template <typename V> inline size_t panel_vectors(size_t left) {
    return left == V::kVectors + 1 ? (left + 1) / 2 : smaller(left, V::kVectors);
}

// One group of rows times one panel: y += the products.
template <typename V, size_t rows>
void multiply_panel(const uint32_t *x, const uint32_t *panel, size_t vectors, size_t blocks,
                    float *y, size_t y_stride) {
    if (vectors == V::kVectors) {
        Tile<V, rows, V::kVectors>::multiply(x, panel, blocks, y, y_stride);
    } else if (vectors == 1) {
        Tile<V, rows, 1>::multiply(x, panel, blocks, y, y_stride);
    } else {
        Tile<V, rows, V::kVectors - 1>::multiply(x, panel, blocks, y, y_stride);
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
