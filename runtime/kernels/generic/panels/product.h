// Matrix products by the block rule (C1), for any vector type. Lanes are outputs, so a lane's chain
// is computed as the rule says, and all else is free.
//
// Packed x is cut into groups of kRows rows, the last group smaller; of a group, for each block,
// chain (even, odd) and step: one word of each row. A panel of weights is the same with vectors of
// outputs in place of rows.
#pragma once

#include "runtime/kernels/generic/panels/batch.h"
#include "runtime/kernels/generic/panels/row.h"
#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_TABLE {

template <typename V> size_t packed_bytes(size_t rows, size_t depth) {
    // Memory for many rows serves one row.
    return rows * blocks_in(depth) * kWords<V> * sizeof(uint32_t) + packed_row_bytes<V>(depth);
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

template <typename V> void pack(const Pack &task, size_t begin, size_t end) {
    const size_t row_words = blocks_in(task.depth) * kWords<V>;
    for (size_t row = begin; row < end; row += V::kRows) {
        with_rows<V>(end - row, [&]<size_t rows>() {
            pack_group<V, rows>(task.x + row * task.x_stride, task.x_stride, task.depth,
                                static_cast<uint32_t *>(task.packed) + row * row_words);
        });
    }
    if (task.rows == 1 && row_groups<V>(task.depth) != 0) {
        auto *packed = static_cast<uint32_t *>(task.packed);
        pack_row<V>(packed, task.depth, packed + row_words);
    }
}

// A block for more rows than kRowsTogether: its weights are turned into memory, which stays in the
// first level of caches, and met by one chain after the other. Sums that leave registers in between
// cost half the speed of 8 rows of bf16 (Zen 5).
template <typename V, size_t rows, typename Blocks>
[[gnu::always_inline]] inline void multiply_turned(Blocks &strip, size_t k, const uint32_t *x,
                                                   typename V::Floats (&even)[rows],
                                                   typename V::Floats (&odd)[rows]) {
    alignas(64) uint32_t turned[kWords<V> * V::kLanes];
    store_block<V>(strip, k, V::kLanes, turned);
    asm volatile("" : "+m"(turned)); // else gcc 12 keeps them in registers, and sums in memory
    unroll<2>([&]<size_t chain>() {
        typename V::Floats(&sum)[rows] = chain == 0 ? even : odd;
        unroll<kSteps<V>>([&]<size_t step>() {
            constexpr size_t at = chain * kSteps<V> + step;
            const typename V::Words w = V::load(turned + at * V::kLanes);
            unroll<rows>([&]<size_t r>() {
                sum[r] = V::multiply_add_broadcast(x + at * rows + r, w, sum[r]);
            });
        });
    });
}

// `count` outputs, kLanes at most, of a strip's blocks for rows of packed x that are one group.
// fetch(k) is called before each block.
template <typename V, size_t rows, typename Blocks, typename Fetch>
[[gnu::always_inline]] inline void sum_blocks(Blocks &strip, const uint32_t *x, size_t depth,
                                              float *y, size_t y_stride, size_t count,
                                              const Fetch &fetch) {
    typename V::Floats total[rows];
    unroll<rows>([&]<size_t r>() { total[r] = V::zero(); });
    for (size_t k = 0; k < depth; k += kBlock) {
        fetch(k);
        typename V::Floats even[rows], odd[rows];
        unroll<rows>([&]<size_t r>() { even[r] = odd[r] = V::zero(); });
        if constexpr (rows > Blocks::kRowsTogether) {
            multiply_turned<V, rows>(strip, k, x, even, odd);
        } else {
            strip.block(k, [&]<size_t step>(auto even_w, auto odd_w) {
                unroll<rows>([&]<size_t r>() {
                    const uint32_t *word = x + step * rows + r;
                    even[r] = V::multiply_add_broadcast(word, even_w, even[r]);
                    odd[r] = V::multiply_add_broadcast(word + kSteps<V> * rows, odd_w, odd[r]);
                });
            });
        }
        x += kWords<V> * rows;
        unroll<rows>([&]<size_t r>() { total[r] = V::add(total[r], V::add(even[r], odd[r])); });
        constexpr size_t kTotals = 5; // beside the sums of both chains
        if constexpr (rows > kTotals && rows <= Blocks::kRowsTogether) {
            asm volatile("" : "+m"(total)); // else gcc 12 keeps them in registers, and sums not
        }
    }
    unroll<rows>([&]<size_t r>() {
        if (count == V::kLanes) {
            V::store_floats(y + r * y_stride, total[r]);
        } else {
            float lanes[V::kLanes];
            V::store_floats(lanes, total[r]);
            __builtin_memcpy(y + r * y_stride, lanes, count * sizeof(float));
        }
    });
}

// Before the block at k of a strip: what lies kAhead elements further on in its rows, and beyond
// their ends in the rows that are `outputs` further, the next to be read.
template <typename V>
[[gnu::always_inline]] inline void fetch_rows(const Strip<V> &strip, const Matmul &task, size_t k,
                                              size_t outputs) {
    const size_t ahead = k + V::kAhead;
    strip.template prefetch<V::kNear>(
        ahead < task.depth ? ahead : ahead - task.depth + outputs * task.w_stride);
}

// The strip of a matrix from `output` on.
template <typename V> Strip<V> strip_at(const Matmul &task, size_t output) {
    return {task.w + output * task.w_stride, task.w_stride,
            smaller(V::kLanes, task.outputs - output), task.depth};
}

// kLanes outputs for rows that are one group, weights taken as they lie.
template <typename V, size_t rows>
[[gnu::flatten]] void multiply_strip(const Matmul &task, size_t output) {
    Strip<V> strip = strip_at<V>(task, output);
    sum_blocks<V, rows>(strip, static_cast<const uint32_t *>(task.packed), task.depth,
                        task.y + output, task.y_stride, smaller(V::kLanes, task.outputs - output),
                        [&](size_t k) { fetch_rows<V>(strip, task, k, V::kLanes); });
}

// Packs the blocks begin .. end - 1 of `count` outputs (at most kVectors vectors of them). strip(n)
// returns those of the outputs from n on; fetch(strip, k) is called before each block of each.
template <typename V, typename StripAt, typename Fetch>
[[gnu::flatten]] void pack_panel(size_t count, size_t begin, size_t end, uint32_t *panel,
                                 const StripAt &strip, const Fetch &fetch) {
    const size_t width = (count + V::kLanes - 1) / V::kLanes * V::kLanes;
    for (size_t n = 0; n < count; n += V::kLanes) {
        auto blocks = strip(n);
        uint32_t *to = panel + n;
        for (size_t block = begin; block < end; ++block) {
            fetch(blocks, block * kBlock);
            store_block<V>(blocks, block * kBlock, width, to);
            to += kWords<V> * width;
        }
    }
}

// Few rows: bound by reading the weights, which are used where they lie.
template <typename V> void multiply_few(const Matmul &task) {
    const bool by_blocks = task.rows == 1 && row_groups<V>(task.depth) != 0;
    const size_t begin = by_blocks ? multiply_row<V>(task) : 0;
    with_rows<V>(task.rows, [&]<size_t rows>() {
        for (size_t output = begin; output < task.outputs; output += V::kLanes) {
            multiply_strip<V, rows>(task, output);
        }
    });
}

// Blocks of a panel, which stays in the second level of caches (128 or 256 KiB). Sums leave
// registers where a panel ends: 64 blocks are 1.05 to 1.3 times as fast as 16 (Zen 4, VDPBF16PS),
// more of them no faster.
inline constexpr size_t kPanelBlocks = 64;

// A product by panels: `pack(output, count, begin, end, panel)` packs the blocks begin .. end - 1
// of `count` outputs, then all rows of packed x are multiplied by them. `panel` has room for
// kPanelBlocks blocks of kVectors vectors.
template <typename V, typename PackPanel>
void multiply_panels(const void *packed, size_t rows_all, size_t outputs, size_t depth, float *y,
                     size_t y_stride, uint32_t *panel, const PackPanel &pack) {
    for (size_t row = 0; row < rows_all; ++row) {
        clear(y + row * y_stride, outputs);
    }
    const size_t blocks = blocks_in(depth);
    for (size_t begin = 0; begin < blocks; begin += kPanelBlocks) {
        const size_t count = smaller(kPanelBlocks, blocks - begin);
        for (size_t output = 0, width; output < outputs; output += width) {
            const size_t left = (outputs - output + V::kLanes - 1) / V::kLanes;
            const size_t vectors = smaller(left, V::kVectors);
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

// Many rows: bound by arithmetic. A panel of weights is packed once for all of them, while the one
// after it is on its way into the second level of caches.
template <typename V> void multiply_many(const Matmul &task) {
    const auto pack = [&](size_t output, size_t count, size_t begin, size_t end, uint32_t *panel) {
        const size_t ahead = output + count < task.outputs
                                 ? count * task.w_stride
                                 : (end - begin) * kBlock - output * task.w_stride;
        pack_panel<V>(
            count, begin, end, panel, [&](size_t n) { return strip_at<V>(task, output + n); },
            [&](const Strip<V> &strip, size_t k) { strip.template prefetch<2>(k + ahead); });
    };
    multiply_panels<V>(task.packed, task.rows, task.outputs, task.depth, task.y, task.y_stride,
                       static_cast<uint32_t *>(task.scratch), pack);
}

template <typename V> void matmul(const Matmul &task) {
    if (task.rows <= V::kRows) {
        multiply_few<V>(task);
    } else if (task.rows <= kBatchRows) {
        multiply_batch<V>(
            {static_cast<const uint32_t *>(task.packed), task.rows, task.outputs, task.depth,
             task.y, task.y_stride},
            [&](size_t output) { return strip_at<V>(task, output); },
            [&](const Strip<V> &strip, size_t k) {
                fetch_rows<V>(strip, task, k, V::kVectors * V::kLanes);
            });
    } else {
        multiply_many<V>(task);
    }
}

} // namespace stasis::kernels::STASIS_TABLE
