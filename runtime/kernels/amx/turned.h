// Products come out of the tiles turned: [outputs][rows].
#pragma once

#include "runtime/kernels/amx/packed.h"
#include "runtime/kernels/avx512/vector.h"
#include "runtime/kernels/table.h"

namespace stasis::kernels::amx {

// A tile of 16 outputs from `output` on, of which those below `end` exist, by the 16 rows from
// `row` on, into y.
template <typename Task>
[[gnu::always_inline]] inline void store_turned(const Task &task, const void *tile, size_t output,
                                                size_t end, size_t row) {
    const size_t rows = smaller(task.rows - row, kTileRows);
    const size_t outputs = smaller(end - output, kTileRows);
    const auto mask = static_cast<__mmask16>(0xFFFFU >> (16 - outputs));
    __m512i sums[16];
    for (size_t n = 0; n < 16; ++n) {
        sums[n] = _mm512_load_si512(static_cast<const uint8_t *>(tile) + n * 64);
    }
    Avx512::turn(sums);
    float *y = task.y + row * task.y_stride + output;
    for (size_t r = 0; r < 16; ++r) {
        if (r < rows) {
            _mm512_mask_storeu_epi32(y + r * task.y_stride, mask, sums[r]);
        }
    }
}

} // namespace stasis::kernels::amx
