// What attention does with a block's partial (C5): the merge and the division.
#include "runtime/kernels/generic/lanes/functions.h"
#include "runtime/kernels/generic/lanes/kernels.h"

namespace stasis::kernels::STASIS_TABLE {

namespace {

// One row: o = o_b * beta + o * alpha.
[[gnu::always_inline]] inline void add_scaled(float *o, float alpha, const float *o_b, float beta,
                                              size_t head_dim) {
    by_lanes(head_dim, [&](size_t i, size_t count) STASIS_STEP {
        store(fma(load(o_b + i, count), broadcast(beta), load(o + i, count) * broadcast(alpha)),
              o + i, count);
    });
}

// Lanes are rows first, for maxima and sums, then the dimensions of one row after the other.
void attention_merge(const AttentionMerge &task) {
    by_lanes(task.rows, [&](size_t row, size_t count) STASIS_STEP {
        const Lanes m = load(task.maximum + row, count), l = load(task.sum + row, count);
        const Lanes m_b = load(task.block_maximum + row, count);
        const Lanes l_b = load(task.block_sum + row, count);
        const Lanes maximum = larger(m_b, m);
        const Lanes alpha = exp(m - maximum), beta = exp(m_b - maximum);
        float maxima[kLanes], sums[kLanes], alphas[kLanes], betas[kLanes];
        store(maximum, maxima), store(fma(l_b, beta, l * alpha), sums);
        store(alpha, alphas), store(beta, betas);
        for (size_t r = row; r < row + count; ++r) {
            if (task.visible[r] == 0) {
                continue;
            }
            float *o = task.output + r * task.head_dim;
            const float *o_b = task.block_output + r * task.head_dim;
            const bool first = task.sum[r] == 0.0F;
            task.maximum[r] = first ? task.block_maximum[r] : maxima[r - row];
            task.sum[r] = first ? task.block_sum[r] : sums[r - row];
            if (first) {
                __builtin_memcpy(o, o_b, task.head_dim * sizeof(float));
            } else {
                add_scaled(o, alphas[r - row], o_b, betas[r - row], task.head_dim);
            }
        }
    });
}

void attention_finish(const float *o, float l, size_t head_dim, uint16_t *y) {
    const Lanes divisor = broadcast(l);
    by_lanes(head_dim, [&](size_t i, size_t count)
                           STASIS_STEP { store_bf16(load(o + i, count) / divisor, y + i, count); });
}

} // namespace

void add_merge(Table &table) {
    table.attention_merge = attention_merge;
    table.attention_finish = attention_finish;
}

} // namespace stasis::kernels::STASIS_TABLE
