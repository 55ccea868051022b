// Attention by fixed blocks of positions (C5): one block's partial, the merge, the division. The
// running maximum and sum follow Milakov and Gimelshein, "Online normalizer calculation for
// softmax" (2018); the split into partials, FlashAttention (Dao et al., 2022).
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/reference/block_rule.h"
#include "runtime/kernels/reference/functions.h"
#include "runtime/kernels/reference/kernels.h"

namespace stasis::kernels::STASIS_REFERENCE {

namespace {

// Rows whose scores are computed together; any number gives the same bits.
constexpr size_t kRows = 16;

bool is_visible(uint64_t visible, size_t slot) {
    return (visible >> slot & 1U) != 0;
}

// Applies scale and cap to one row's scores. Returns their maximum over the visible slots, a zero
// as +0.
float finish_scores(const AttentionBlock &task, uint64_t visible, float (&scores)[kPagePositions]) {
    float maximum = -__builtin_inff();
    for (size_t s = 0; s < kPagePositions; ++s) {
        if (!is_visible(visible, s)) {
            continue;
        }
        scores[s] = scores[s] * task.scale;
        if (task.softcap != 0.0F) {
            scores[s] = task.softcap * tanh(scores[s] / task.softcap);
        }
        maximum = scores[s] > maximum ? scores[s] : maximum;
    }
    return maximum + 0.0F;
}

// Computes p of one row, rounded to bf16. Returns the sum of the rounded values (C4).
float weigh(uint64_t visible, const float (&scores)[kPagePositions], float maximum,
            float (&p)[kPagePositions]) {
    float lanes[kSumLanes] = {};
    for (size_t s = 0; s < kPagePositions; ++s) {
        p[s] = 0.0F;
        if (is_visible(visible, s)) {
            p[s] = bf16_to_f32(f32_to_bf16(exp(scores[s] - maximum)));
        }
        lanes[s % kSumLanes] += p[s];
    }
    return sum_lanes(lanes);
}

// Computes the output of one row by the block rule along the slots. Values of slots that the row
// does not see are never read; they count as +0.
void weigh_values(const AttentionBlock &task, uint64_t visible, const float (&p)[kPagePositions],
                  float *output) {
    for (size_t begin = 0; begin < task.head_dim; begin += kLanes) {
        const size_t left = task.head_dim - begin;
        const size_t lanes = left < kLanes ? left : kLanes;
        float total[kLanes] = {};
        for (size_t block = 0; block < kPagePositions; block += kBlock) {
            float a[kBlock];
            float b[kBlock][kLanes] = {};
            for (size_t k = 0; k < kBlock; ++k) {
                a[k] = p[block + k];
                if (is_visible(visible, block + k)) {
                    const uint16_t *value = task.values + (block + k) * task.head_dim + begin;
                    for (size_t n = 0; n < lanes; ++n) {
                        b[k][n] = bf16_to_f32(value[n]);
                    }
                }
            }
            float sum[kLanes];
            block_rule(a, b, sum);
            for (size_t n = 0; n < kLanes; ++n) {
                total[n] = total[n] + sum[n];
            }
        }
        for (size_t n = 0; n < lanes; ++n) {
            output[begin + n] = total[n] + 0.0F; // a zero is stored as +0
        }
    }
}

void attention_block(const AttentionBlock &task) {
    for (size_t begin = 0; begin < task.rows; begin += kRows) {
        const size_t left = task.rows - begin;
        const size_t rows = left < kRows ? left : kRows;
        float scores[kRows][kPagePositions];
        const auto *query = static_cast<const uint16_t *>(task.query) + begin * task.head_dim;
        matmul({query, task.keys, task.head_dim, &scores[0][0], kPagePositions, rows,
                kPagePositions, task.head_dim, nullptr});
        for (size_t i = 0; i < rows; ++i) {
            const size_t row = begin + i;
            const uint64_t visible = task.visible[row];
            if (visible == 0) {
                continue;
            }
            float p[kPagePositions];
            const float maximum = finish_scores(task, visible, scores[i]);
            task.maximum[row] = maximum;
            task.sum[row] = weigh(visible, scores[i], maximum, p);
            for (size_t s = 0; task.weights != nullptr && s < kPagePositions; ++s) {
                task.weights[row * kPagePositions + s] = f32_to_bf16(p[s]); // exact
            }
            weigh_values(task, visible, p, task.output + row * task.head_dim);
        }
    }
}

void merge_row(const AttentionMerge &task, size_t row) {
    float &m = task.maximum[row], &l = task.sum[row];
    const float m_b = task.block_maximum[row], l_b = task.block_sum[row];
    float *o = task.output + row * task.head_dim;
    const float *o_b = task.block_output + row * task.head_dim;
    const float maximum = m_b > m ? m_b : m;
    const float alpha = exp(m - maximum);
    const float beta = exp(m_b - maximum);
    m = maximum;
    l = fma(l_b, beta, l * alpha);
    for (size_t i = 0; i < task.head_dim; ++i) {
        o[i] = fma(o_b[i], beta, o[i] * alpha);
    }
}

void attention_merge(const AttentionMerge &task) {
    for (size_t row = 0; row < task.rows; ++row) {
        if (task.visible[row] == 0) {
            continue;
        }
        if (task.sum[row] != 0.0F) {
            merge_row(task, row);
            continue;
        }
        task.maximum[row] = task.block_maximum[row];
        task.sum[row] = task.block_sum[row];
        __builtin_memcpy(task.output + row * task.head_dim, task.block_output + row * task.head_dim,
                         task.head_dim * sizeof(float));
    }
}

void attention_finish(const float *o, float l, size_t head_dim, uint16_t *y) {
    for (size_t i = 0; i < head_dim; ++i) {
        y[i] = f32_to_bf16(o[i] / l);
    }
}

} // namespace

void add_attention(Table &table) {
    table.attention_block = attention_block;
    table.attention_merge = attention_merge;
    table.attention_finish = attention_finish;
}

} // namespace stasis::kernels::STASIS_REFERENCE
