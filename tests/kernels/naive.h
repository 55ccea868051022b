// Every kernel of the table once more, written from NUMERICS.md with soft_float.h: slow, plain, and
// sharing nothing with runtime/kernels but the signatures. Products of integer weights are in
// naive_quantized.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/kernels/table.h"

namespace naive {

float from_bf16(uint16_t x);
uint16_t to_bf16(float x);
float exp(float x);
float tanh(float x);
float sigmoid(float x);
float softplus(float x);
// C4: the sum of x[i] * x[i].
float sum_of_squares(const float *x, size_t n);

// C1: e + o of one block, a[i * a_step] * b[i * b_step] over n terms (at most 32 are taken).
float block(const uint16_t *a, size_t a_step, const uint16_t *b, size_t b_step, size_t n);
// C1: one output, n terms.
float dot(const uint16_t *a, size_t a_step, const uint16_t *b, size_t b_step, size_t n);

// A matrix product from rows as they lie: y [rows][outputs] = x [rows][depth] w^T [outputs][depth].
struct Product {
    const uint16_t *x;
    size_t x_stride;
    const uint16_t *w;
    size_t w_stride;
    float *y;
    size_t y_stride, rows, outputs, depth;
};

void matmul(const Product &task);
// `query` [rows][head_dim] as it lies, in place of the packed one.
void attention_block(const stasis::kernels::AttentionBlock &task, const uint16_t *query,
                     size_t query_stride);
// C10 of one slot; `share` is exp(m_b - M) / L, or what it is to be tried with.
uint64_t received(uint16_t p, double share);
// Enters the kernels of C11 (naive_recurrent.cpp).
void add_recurrent(stasis::kernels::Table &table);
// The entries whose operands lie alike for every table; the others are null.
const stasis::kernels::Table &table();

} // namespace naive
