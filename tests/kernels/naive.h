// Every kernel of the table once more, written from NUMERICS.md with soft_float.h: slow, plain, and
// sharing nothing with runtime/kernels but the signatures.
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
void rms_norm(const float *x, const float *weight, size_t n, float eps, float *y);
void round_bf16(const float *x, size_t n, uint16_t *y);
void rope(float *x, const float *cosine, const float *sine, size_t n);
// `query` [rows][head_dim] as it lies, in place of the packed one.
void attention_block(const stasis::kernels::AttentionBlock &task, const uint16_t *query,
                     size_t query_stride);
void attention_merge(float *m, float *l, float *o, float m_b, float l_b, const float *o_b,
                     size_t head_dim);
void attention_finish(const float *o, float l, size_t head_dim, uint16_t *y);
// C10 of one slot; `share` is exp(m_b - M) / L, or what it is to be tried with.
uint64_t received(uint16_t p, double share);
void silu_gate(const float *gate, const float *up, size_t n, uint16_t *y);
void gelu_gate(const float *gate, const float *up, size_t n, uint16_t *y);
void add(const float *x, size_t n, float *y);
void embed(const uint16_t *row, float scale, size_t n, float *y);
void embed_wide(const float *row, float scale, size_t n, float *y);
void softcap(float *x, size_t n, float cap);
size_t find_nonfinite(const float *x, size_t n);

} // namespace naive
