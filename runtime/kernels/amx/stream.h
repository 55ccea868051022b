// Matrix products (C1) for few rows: bound by reading the weights, which are left operands. A tile
// of them meets all the rows before the next is read.
#pragma once

#include "runtime/kernels/amx/packed.h"
#include "runtime/kernels/amx/turned.h"

namespace stasis::kernels::amx {

inline constexpr size_t kStreamedRows = 64; // the most there are

// The block's products for `groups` groups of rows, `group_bytes` apart; a tile of x has rows of
// `x_bytes`.
template <size_t groups>
[[gnu::always_inline]] inline void multiply_block(const uint8_t *x, size_t x_bytes,
                                                  size_t group_bytes) {
    load<6>(x, x_bytes);
    multiply_add<0, 4, 6>();
    if constexpr (groups >= 2) {
        load<7>(x + group_bytes, x_bytes);
        multiply_add<1, 4, 7>();
    }
    if constexpr (groups == 4) {
        load<6>(x + 2 * group_bytes, x_bytes);
        multiply_add<2, 4, 6>();
        load<7>(x + 3 * group_bytes, x_bytes);
        multiply_add<3, 4, 7>();
    }
}

// A strip's products. strip.each_block(multiply) loads tile 4 with the weights of one block after
// the other, and calls multiply() for each.
template <size_t groups, typename Task, typename Strip>
void stream_strip(const Task &task, const Strip &strip, uint8_t *turned) {
    const size_t x_bytes = groups == 1 ? task.rows * 4 : 64;
    const size_t group_bytes = blocks_in(task.depth) * kTileBytes;
    const auto *x = static_cast<const uint8_t *>(task.packed);
    zero<0>(), zero<1>(), zero<2>(), zero<3>();
    strip.each_block([&]() __attribute__((always_inline)) {
        multiply_block<groups>(x, x_bytes, group_bytes);
        x += kTileRows * x_bytes;
    });
    store<0>(turned, 64), store<1>(turned + kTileBytes, 64);
    store<2>(turned + 2 * kTileBytes, 64), store<3>(turned + 3 * kTileBytes, 64);
}

// strip_at(output, outputs) returns the strip of up to 16 outputs from `output` on.
template <size_t groups, typename Task, typename StripAt>
void stream_outputs(const Task &task, const StripAt &strip_at) {
    const size_t columns = groups == 1 ? task.rows : kTileRows;
    Tiles tiles(TileConfig(kTileRows, columns));
    alignas(64) uint8_t turned[4 * kTileBytes] = {}; // [group][outputs][rows]
    for (size_t output = 0; output < task.outputs; output += kTileRows) {
        const size_t outputs = smaller(task.outputs - output, kTileRows);
        if (outputs < kTileRows) {
            tiles.configure(TileConfig(outputs, columns));
        }
        stream_strip<groups>(task, strip_at(output, outputs), turned);
        for (size_t row = 0; row < task.rows; row += kTileRows) {
            store_turned(task, turned + row / kTileRows * kTileBytes, output, task.outputs, row);
        }
    }
}

template <typename Task, typename StripAt> void stream(const Task &task, const StripAt &strip_at) {
    if (task.rows <= kTileRows) {
        stream_outputs<1>(task, strip_at);
    } else if (task.rows <= 2 * kTileRows) {
        stream_outputs<2>(task, strip_at);
    } else {
        stream_outputs<4>(task, strip_at);
    }
}

} // namespace stasis::kernels::amx
