// Matrix products (C1) for few rows: bound by reading the weights, which are left operands where
// they lie. A tile of them meets all the rows before the next is read.
#include "runtime/kernels/amx/kernels.h"
#include "runtime/kernels/amx/packed.h"
#include "runtime/kernels/amx/turned.h"

namespace stasis::kernels::amx {

namespace {

constexpr size_t kAhead = 256; // terms that a row of weights is fetched ahead of its use

// Up to 16 outputs; `next` are the weights that come after them.
struct Strip {
    const Matmul &task;
    const uint16_t *w, *next;
    size_t outputs;

    // The weights of the block at k, those further on fetched.
    [[gnu::always_inline]] void load_weights(size_t k) const {
        const size_t ahead = k + kAhead;
        const uint16_t *far = ahead < task.depth ? w + ahead : next + (ahead - task.depth);
        for (size_t n = 0; n < outputs; ++n) {
            fetch_near(far + n * task.w_stride);
        }
        load<4>(w + k, task.w_stride * sizeof(uint16_t));
    }

    // The last block of a row that ends within it, +0 beyond.
    void load_tail(size_t k) const {
        alignas(64) uint16_t tail[kTileRows][kBlock] = {};
        for (size_t n = 0; n < outputs; ++n) {
            __builtin_memcpy(tail[n], w + n * task.w_stride + k,
                             (task.depth - k) * sizeof(uint16_t));
        }
        load<4>(tail, 64);
    }
};

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

template <size_t groups> void stream_strip(const Strip &strip, uint8_t *turned) {
    const Matmul &task = strip.task;
    const size_t x_bytes = groups == 1 ? task.rows * 4 : 64;
    const size_t group_bytes = blocks_in(task.depth) * kTileBytes;
    const auto *x = static_cast<const uint8_t *>(task.packed);
    zero<0>(), zero<1>(), zero<2>(), zero<3>();
    const size_t whole = task.depth / kBlock * kBlock;
    for (size_t k = 0; k < whole; k += kBlock, x += 16 * x_bytes) {
        strip.load_weights(k);
        multiply_block<groups>(x, x_bytes, group_bytes);
    }
    if (whole < task.depth) {
        strip.load_tail(whole);
        multiply_block<groups>(x, x_bytes, group_bytes);
    }
    store<0>(turned, 64), store<1>(turned + kTileBytes, 64);
    store<2>(turned + 2 * kTileBytes, 64), store<3>(turned + 3 * kTileBytes, 64);
}

template <size_t groups> void stream_outputs(const Matmul &task) {
    const size_t columns = groups == 1 ? task.rows : kTileRows;
    Tiles tiles(TileConfig(kTileRows, columns));
    alignas(64) uint8_t turned[4 * kTileBytes] = {}; // [group][outputs][rows]
    for (size_t output = 0; output < task.outputs; output += kTileRows) {
        const size_t outputs = smaller(task.outputs - output, kTileRows);
        if (outputs < kTileRows) {
            tiles.configure(TileConfig(outputs, columns));
        }
        const uint16_t *w = task.w + output * task.w_stride;
        stream_strip<groups>({task, w, w + outputs * task.w_stride, outputs}, turned);
        for (size_t row = 0; row < task.rows; row += kTileRows) {
            store_turned(task, turned + row / kTileRows * kTileBytes, output, task.outputs, row);
        }
    }
}

} // namespace

void stream(const Matmul &task) {
    if (task.rows <= kTileRows) {
        stream_outputs<1>(task);
    } else if (task.rows <= 2 * kTileRows) {
        stream_outputs<2>(task);
    } else {
        stream_outputs<4>(task);
    }
}

} // namespace stasis::kernels::amx
