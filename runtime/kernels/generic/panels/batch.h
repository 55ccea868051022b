// A batch of rows by strips (C1): more rows than have their sums in registers beside a strip, and
// so few that reading the weights takes about as long as multiplying them. Some blocks of two
// strips are turned into memory, stay in the first level of caches, and meet all rows, while what
// lies ahead is on its way.
#pragma once

#include "runtime/kernels/generic/panels/tile.h"

namespace stasis::kernels::STASIS_TABLE {

inline constexpr size_t kBatchRows = 64;  // at most
inline constexpr size_t kBatchBlocks = 4; // of a strip that are turned at a time

// Packed x, and y for all outputs of the product.
struct Batch {
    const uint32_t *x;
    size_t rows; // up to kBatchRows
    size_t outputs;
    size_t depth;
    float *y;
    size_t y_stride;
};

// Outputs from `output` on, kLanes of each strip. fetch(strip, k) is called before each block.
template <typename V, size_t count, typename Blocks, typename Fetch>
[[gnu::flatten]] void multiply_strips(const Batch &task, size_t output, Blocks (&strips)[count],
                                      const Fetch &fetch) {
    constexpr size_t kWidth = count * V::kLanes;
    alignas(64) float sums[kBatchRows * kWidth];
    constexpr size_t kPanel = kWords<V> * kWidth;
    alignas(64) uint32_t panel[kBatchBlocks * kPanel];
    clear(sums, task.rows * kWidth);
    const size_t blocks = blocks_in(task.depth);
    for (size_t begin = 0; begin < blocks; begin += kBatchBlocks) {
        const size_t together = smaller(kBatchBlocks, blocks - begin);
        for (size_t block = 0; block < together; ++block) {
            const size_t k = (begin + block) * kBlock;
            uint32_t *to = panel + block * kPanel;
            unroll<count>([&]<size_t n>() {
                fetch(strips[n], k);
                store_block<V>(strips[n], k, kWidth, to + n * V::kLanes);
            });
        }
        for (size_t row = 0; row < task.rows; row += V::kRows) {
            with_rows<V>(task.rows - row, [&]<size_t rows>() {
                const uint32_t *x = task.x + (row * blocks + begin * rows) * kWords<V>;
                Tile<V, rows, count>::multiply(x, panel, together, sums + row * kWidth, kWidth);
            });
        }
    }
    const size_t width = smaller(kWidth, task.outputs - output);
    for (size_t row = 0; row < task.rows; ++row) {
        __builtin_memcpy(task.y + row * task.y_stride + output, sums + row * kWidth,
                         width * sizeof(float));
    }
}

// strip(output) returns the blocks of kLanes outputs.
template <typename V, typename StripAt, typename Fetch>
void multiply_batch(const Batch &task, const StripAt &strip, const Fetch &fetch) {
    for (size_t output = 0, vectors; output < task.outputs; output += vectors * V::kLanes) {
        static_assert(V::kVectors == 2);
        vectors = task.outputs - output > V::kLanes ? V::kVectors : 1;
        const auto at = [&](size_t n) { return strip(output + n * V::kLanes); };
        if (vectors == V::kVectors) {
            decltype(strip(0)) strips[] = {at(0), at(1)};
            multiply_strips<V>(task, output, strips, fetch);
        } else {
            decltype(strip(0)) strips[] = {at(0)};
            multiply_strips<V>(task, output, strips, fetch);
        }
    }
}

} // namespace stasis::kernels::STASIS_TABLE
