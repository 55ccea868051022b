// Products with coded weights (coded.h).
#pragma once

#include "runtime/kernels/generic/panels/coded_blocks.h"
#include "runtime/kernels/generic/panels/product.h"
#include "runtime/kernels/read_ahead.h"

namespace stasis::kernels::STASIS_TABLE {

// Strips of the outputs begin .. end - 1 for the rows of packed x from `row` on that are one group.
template <typename V, size_t rows>
[[gnu::flatten]] void multiply_coded_strips(const CodedMatmul &task, size_t row, size_t begin,
                                            size_t end, bool fetch) {
    const uint32_t *x =
        static_cast<const uint32_t *>(task.packed) + row * blocks_in(task.depth) * kWords<V>;
    float *y = task.y + row * task.y_stride;
    for (size_t output = begin; output < end; output += V::kLanes) {
        CodedBlocks<V> blocks(task, output, 0);
        sum_blocks<V, rows>(blocks, x, task.depth, y + output, task.y_stride,
                            smaller(V::kLanes, task.outputs - output), [&](size_t) {
                                if (fetch) {
                                    blocks.fetch();
                                }
                            });
    }
}

// More rows than one group, each of which has its sums in registers. Up to kBatchRows of them,
// which stay in the second level of caches, meet a strip before the next is read, one group after
// the other.
template <typename V> void multiply_coded_groups(const CodedMatmul &task) {
    static_assert(kBatchRows % V::kRows == 0);
    for (size_t first = 0; first < task.rows; first += kBatchRows) {
        const size_t last = smaller(first + kBatchRows, task.rows);
        for (size_t output = 0; output < task.outputs; output += V::kLanes) {
            const size_t end = smaller(output + V::kLanes, task.outputs);
            for (size_t row = first; row < last; row += V::kRows) {
                with_rows<V>(last - row, [&]<size_t rows>() {
                    multiply_coded_strips<V, rows>(task, row, output, end, row == first);
                });
            }
        }
    }
}

// More rows than one group, whose sums would not stay in registers.
template <typename V> void multiply_coded_panels(const CodedMatmul &task) {
    const auto *x = static_cast<const uint32_t *>(task.packed);
    if (task.rows <= kBatchRows) {
        multiply_batch<V>(
            {x, task.rows, task.outputs, task.depth, task.y, task.y_stride},
            [&](size_t output) { return CodedBlocks<V>(task, output, 0); },
            [&](const CodedBlocks<V> &blocks, size_t k) {
                // The next strip is read beside this one: what follows is the one behind it.
                const size_t ahead = k / kBlock * kCodedBytes<V> + CodedBlocks<V>::kAheadBytes;
                const size_t strip = blocks_in(task.depth) * kCodedBytes<V>;
                blocks.fetch(CodedBlocks<V>::kAheadBytes + (ahead < strip ? 0 : strip));
            });
    } else {
        const auto pack = [&](size_t output, size_t count, size_t begin, size_t end,
                              uint32_t *panel) {
            pack_panel<V>(
                count, begin, end, panel,
                [&](size_t n) { return CodedBlocks<V>(task, output + n, begin); },
                [](const CodedBlocks<V> &, size_t) {});
        };
        multiply_panels<V>(x, task.rows, task.outputs, task.depth, task.y, task.y_stride,
                           static_cast<uint32_t *>(task.scratch), pack);
    }
}

template <typename V> void matmul_coded(const CodedMatmul &task) {
    if (task.rows <= V::kRows) {
        with_rows<V>(task.rows, [&]<size_t rows>() {
            const bool fetch = rows > V::kAlone || read_ahead() != ReadAhead::alone;
            multiply_coded_strips<V, rows>(task, 0, 0, task.outputs, fetch);
        });
    } else if constexpr (V::kRows <= V::kCodedRows) {
        multiply_coded_groups<V>(task);
    } else {
        multiply_coded_panels<V>(task);
    }
}

} // namespace stasis::kernels::STASIS_TABLE
