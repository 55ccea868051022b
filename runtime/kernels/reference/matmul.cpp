// Matrix products by the block rule (C1). Knows nothing of the operands' meaning.
#include <cassert>

#include "runtime/kernels/bf16.h"
#include "runtime/kernels/reference/block_rule.h"
#include "runtime/kernels/reference/kernels.h"

namespace stasis::kernels::STASIS_REFERENCE {

namespace {

size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

// Loads w[output][k] of one block, transposed so that outputs are side by side; +0 past depth and
// outputs.
void load_weights(const Matmul &task, size_t output, size_t k, float (&w)[kBlock][kLanes]) {
    const size_t lanes = smaller(task.outputs - output, kLanes);
    const size_t terms = smaller(task.depth - k, kBlock);
    __builtin_memset(w, 0, sizeof w);
    for (size_t n = 0; n < lanes; ++n) {
        const uint16_t *row = task.w + (output + n) * task.w_stride + k;
        for (size_t i = 0; i < terms; ++i) {
            w[i][n] = bf16_to_f32(row[i]);
        }
    }
}

void load_row(const Matmul &task, size_t r, size_t k, float (&x)[kBlock]) {
    const size_t terms = smaller(task.depth - k, kBlock);
    const uint16_t *row = static_cast<const uint16_t *>(task.packed) + r * task.depth + k;
    __builtin_memset(x, 0, sizeof x);
    for (size_t i = 0; i < terms; ++i) {
        x[i] = bf16_to_f32(row[i]);
    }
}

size_t packed_bytes(size_t rows, size_t depth) {
    return rows * depth * sizeof(uint16_t);
}

// Copies rows [begin, end) unchanged, one after the other.
void pack(const Pack &task, size_t begin, size_t end) {
    assert(begin % kPackRows == 0 && (end % kPackRows == 0 || end == task.rows));
    for (size_t r = begin; r < end; ++r) {
        __builtin_memcpy(static_cast<uint16_t *>(task.packed) + r * task.depth,
                         task.x + r * task.x_stride, task.depth * sizeof(uint16_t));
    }
}

} // namespace

void matmul(const Matmul &task) {
    for (size_t r = 0; r < task.rows; ++r) {
        for (size_t n = 0; n < task.outputs; ++n) {
            task.y[r * task.y_stride + n] = 0.0F;
        }
    }
    for (size_t output = 0; output < task.outputs; output += kLanes) {
        const size_t lanes = smaller(task.outputs - output, kLanes);
        for (size_t k = 0; k < task.depth; k += kBlock) {
            float w[kBlock][kLanes];
            load_weights(task, output, k, w);
            for (size_t r = 0; r < task.rows; ++r) {
                float x[kBlock];
                float sum[kLanes];
                load_row(task, r, k, x);
                block_rule(x, w, sum);
                float *y = task.y + r * task.y_stride + output;
                for (size_t n = 0; n < lanes; ++n) {
                    y[n] = y[n] + sum[n];
                }
            }
        }
    }
}

void add_products(Table &table) {
    table.pack = pack;
    table.packed_bytes = packed_bytes;
    table.matmul = matmul;
}

} // namespace stasis::kernels::STASIS_REFERENCE
