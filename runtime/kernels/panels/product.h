// Matrix products by the block rule (C1), for any vector type. Lanes are outputs, so a lane's chain
// is computed as the rule says, and all else is free.
//
// Packed x is cut into groups of kRows rows, the last group smaller; of a group, for each block,
// chain (even, odd) and step: one word of each row. A panel of weights is the same with vectors of
// outputs in place of rows.
#pragma once

#include "runtime/kernels/panels/strip.h"
#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_TABLE {

template <typename V> size_t packed_bytes(size_t rows, size_t depth) {
    return rows * blocks_in(depth) * kWords<V> * sizeof(uint32_t);
}

// Rows of x that lie together in one group.
template <typename V, size_t rows>
[[gnu::flatten]] void pack_group(const uint16_t *x, size_t stride, size_t depth, uint32_t *packed) {
    Strip<V, rows> strip(x, stride, rows, depth);
    for (size_t k = 0; k < depth; k += kBlock) {
        strip.block(k, [&]<size_t step>(auto even, auto odd) {
            uint32_t words[2][V::kLanes];
            V::store(words[0], even);
            V::store(words[1], odd);
            __builtin_memcpy(packed + step * rows, words[0], rows * sizeof(uint32_t));
            __builtin_memcpy(packed + (kSteps<V> + step) * rows, words[1], rows * sizeof(uint32_t));
        });
        packed += kWords<V> * rows;
    }
}

// Calls work<rows>() for the number of rows that a group has.
template <typename V, size_t most = V::kRows, typename Work>
[[gnu::always_inline]] inline void with_rows(size_t rows, const Work &work) {
    if (rows >= most) {
        work.template operator()<most>();
    } else if constexpr (most > 1) {
        with_rows<V, most - 1>(rows, work);
    }
}

template <typename V> void pack(const Pack &task, size_t begin, size_t end) {
    const size_t row_words = blocks_in(task.depth) * kWords<V>;
    for (size_t row = begin; row < end; row += V::kRows) {
        with_rows<V>(end - row, [&]<size_t rows>() {
            pack_group<V, rows>(task.x + row * task.x_stride, task.x_stride, task.depth,
                                static_cast<uint32_t *>(task.packed) + row * row_words);
        });
    }
}

// kLanes outputs for the rows of one group, weights taken as they lie.
template <typename V, size_t rows>
[[gnu::flatten]] void multiply_strip(const Matmul &task, size_t output, const uint32_t *x,
                                     float *y) {
    const size_t count = smaller(V::kLanes, task.outputs - output);
    Strip<V> strip(task.w + output * task.w_stride, task.w_stride, count, task.depth);
    typename V::Floats total[rows];
    unroll<rows>([&]<size_t r>() { total[r] = V::zero(); });
    for (size_t k = 0; k < task.depth; k += kBlock) {
        // Beyond the end of a row lies, for the next strip, the begin of a row kLanes further.
        const size_t ahead = k + V::kAhead;
        const size_t offset =
            ahead < task.depth ? ahead : ahead - task.depth + V::kLanes * task.w_stride;
        strip.template prefetch<V::kNear>(offset);

        typename V::Floats even[rows], odd[rows];
        unroll<rows>([&]<size_t r>() { even[r] = odd[r] = V::zero(); });
        strip.block(k, [&]<size_t step>(auto even_w, auto odd_w) {
            unroll<rows>([&]<size_t r>() {
                const uint32_t *word = x + step * rows + r;
                even[r] = V::multiply_add(V::broadcast(word), even_w, even[r]);
                odd[r] = V::multiply_add(V::broadcast(word + kSteps<V> * rows), odd_w, odd[r]);
            });
        });
        x += kWords<V> * rows;
        unroll<rows>([&]<size_t r>() { total[r] = V::add(total[r], V::add(even[r], odd[r])); });
    }
    unroll<rows>([&]<size_t r>() {
        if (count == V::kLanes) {
            V::store_floats(y + r * task.y_stride, total[r]);
        } else {
            float lanes[V::kLanes];
            V::store_floats(lanes, total[r]);
            __builtin_memcpy(y + r * task.y_stride, lanes, count * sizeof(float));
        }
    });
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

// Blocks begin .. end - 1 of `count` outputs (at most kVectors vectors of them) from `w` on.
// fetch() is called for each vector of each block.
template <typename V, typename Fetch>
[[gnu::flatten]] void pack_panel(const uint16_t *w, size_t stride, size_t count, size_t depth,
                                 size_t begin, size_t end, uint32_t *panel, const Fetch &fetch) {
    const size_t vectors = (count + V::kLanes - 1) / V::kLanes;
    const size_t width = vectors * V::kLanes;
    for (size_t n = 0; n < vectors; ++n) {
        const size_t first = n * V::kLanes;
        Strip<V> strip(w + first * stride, stride, smaller(V::kLanes, count - first), depth);
        uint32_t *to = panel + first;
        for (size_t block = begin; block < end; ++block) {
            fetch();
            strip.block(block * kBlock, [&]<size_t step>(auto even, auto odd) {
                V::store(to + step * width, even);
                V::store(to + (kSteps<V> + step) * width, odd);
            });
            to += kWords<V> * width;
        }
    }
}

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

// Blocks of a panel, which then stays in the second level of caches.
inline constexpr size_t kChunkBlocks = 16;

// Few rows: bound by reading the weights, which are used where they lie.
template <typename V> void multiply_few(const Matmul &task) {
    const size_t row_words = blocks_in(task.depth) * kWords<V>;
    for (size_t output = 0; output < task.outputs; output += V::kLanes) {
        for (size_t row = 0; row < task.rows; row += V::kRows) {
            with_rows<V>(task.rows - row, [&]<size_t rows>() {
                multiply_strip<V, rows>(
                    task, output, static_cast<const uint32_t *>(task.packed) + row * row_words,
                    task.y + row * task.y_stride + output);
            });
        }
    }
}

// A product by panels: `pack(output, count, begin, end, panel)` packs the blocks begin .. end - 1
// of `count` outputs, then all rows of packed x are multiplied by them. `panel` has room for
// `chunk` blocks of kVectors vectors.
template <typename V, typename PackPanel>
void multiply_panels(const void *packed, size_t rows_all, size_t outputs, size_t depth,
                     size_t chunk, float *y, size_t y_stride, uint32_t *panel,
                     const PackPanel &pack) {
    for (size_t row = 0; row < rows_all; ++row) {
        clear(y + row * y_stride, outputs);
    }
    const size_t blocks = blocks_in(depth);
    for (size_t begin = 0; begin < blocks; begin += chunk) {
        const size_t count = smaller(chunk, blocks - begin);
        for (size_t output = 0, width; output < outputs; output += width) {
            const size_t left = (outputs - output + V::kLanes - 1) / V::kLanes;
            const size_t vectors = panel_vectors<V>(left);
            width = smaller(vectors * V::kLanes, outputs - output);
            pack(output, width, begin, begin + count, panel);
            for (size_t row = 0; row < rows_all; row += V::kRows) {
                with_rows<V>(rows_all - row, [&]<size_t rows>() {
                    const uint32_t *x = static_cast<const uint32_t *>(packed) +
                                        (row * blocks + begin * rows) * kWords<V>;
                    float *to = y + row * y_stride + output;
                    if (width == vectors * V::kLanes) {
                        multiply_panel<V, rows>(x, panel, vectors, count, to, y_stride);
                    } else {
                        multiply_edge<V, rows>(x, panel, vectors, count, to, y_stride, width);
                    }
                });
            }
        }
    }
}

// Many rows: bound by arithmetic. A panel of weights is packed once for all of them.
template <typename V> void multiply_many(const Matmul &task) {
    multiply_panels<V>(task.packed, task.rows, task.outputs, task.depth, kChunkBlocks, task.y,
                       task.y_stride, static_cast<uint32_t *>(task.scratch),
                       [&](size_t output, size_t count, size_t begin, size_t end, uint32_t *panel) {
                           pack_panel<V>(task.w + output * task.w_stride, task.w_stride, count,
                                         task.depth, begin, end, panel, [] {});
                       });
}

template <typename V> void matmul(const Matmul &task) {
    if (task.rows <= V::kRows) {
        multiply_few<V>(task);
    } else {
        multiply_many<V>(task);
    }
}

} // namespace stasis::kernels::STASIS_TABLE
