// Products with coded weights (coded.h).
#pragma once

#include "runtime/kernels/generic/panels/coded_blocks.h"
#include "runtime/kernels/generic/panels/product.h"
#include "runtime/kernels/read_ahead.h"

namespace stasis::kernels::STASIS_TABLE {

template <typename V, size_t rows>
[[gnu::flatten]] void multiply_coded_strips(const CodedMatmul &task) {
    const bool fetch = rows > V::kAlone || read_ahead() != ReadAhead::alone;
    for (size_t output = 0; output < task.outputs; output += V::kLanes) {
        CodedBlocks<V> blocks(task, output, 0);
        sum_blocks<V, rows>(blocks, static_cast<const uint32_t *>(task.packed), task.depth,
                            task.y + output, task.y_stride,
                            smaller(V::kLanes, task.outputs - output), [&](size_t) {
                                if (fetch) {
                                    blocks.fetch();
                                }
                            });
    }
}

template <typename V> void matmul_coded(const CodedMatmul &task) {
    const auto *x = static_cast<const uint32_t *>(task.packed);
    if (task.rows <= V::kRows) {
        with_rows<V>(task.rows, [&]<size_t rows>() { multiply_coded_strips<V, rows>(task); });
    } else if (task.rows <= kBatchRows) {
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

} // namespace stasis::kernels::STASIS_TABLE
