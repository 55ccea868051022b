// Matrix products by the block rule (C1). Knows nothing of what is multiplied.
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/reference/block_rule.h"
#include "runtime/kernels/reference/kernels.h"

namespace stasis::kernels::STASIS_REFERENCE {

namespace {

// w[output][k] of one block, turned so that outputs lie side by side; +0 beyond depth and outputs.
void load_weights(const Matmul &task, size_t output, size_t k, float (&w)[kBlock][kLanes]) {
    for (size_t n = 0; n < kLanes; ++n) {
        for (size_t i = 0; i < kBlock; ++i) {
            const bool inside = output + n < task.outputs && k + i < task.depth;
            w[i][n] = inside ? bf16_to_f32(task.w[(output + n) * task.w_stride + k + i]) : 0.0F;
        }
    }
}

void load_row(const uint16_t *row, size_t depth, size_t k, float (&x)[kBlock]) {
    for (size_t i = 0; i < kBlock; ++i) {
        x[i] = k + i < depth ? bf16_to_f32(row[k + i]) : 0.0F;
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
        const size_t left = task.outputs - output;
        const size_t lanes = left < kLanes ? left : kLanes;
        for (size_t k = 0; k < task.depth; k += kBlock) {
            float w[kBlock][kLanes];
            load_weights(task, output, k, w);
            for (size_t r = 0; r < task.rows; ++r) {
                float x[kBlock];
                float sum[kLanes];
                load_row(task.x + r * task.x_stride, task.depth, k, x);
                block_rule(x, w, sum);
                float *y = task.y + r * task.y_stride + output;
                for (size_t n = 0; n < lanes; ++n) {
                    y[n] = y[n] + sum[n];
                }
            }
        }
    }
}

} // namespace stasis::kernels::STASIS_REFERENCE
