// The reference kernels, one for each entry of Table (table.h); reference.cpp puts them there.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_REFERENCE {

void pack(const Pack &task, size_t begin, size_t end);
size_t packed_bytes(size_t rows, size_t depth);
void matmul(const Matmul &task);

void quantize(const Quantize &task, size_t begin, size_t end);
size_t quantized_bytes(size_t rows, size_t depth, size_t group);
void matmul_quantized(const QuantizedMatmul &task);
void embed_quantized(Quant type, const uint8_t *row, float scale, size_t n, float *y);

void rms_norm(const float *x, const float *weight, size_t n, float eps, float *y);
void rope(float *x, const float *cosine, const float *sine, size_t n);

void attention_block(const AttentionBlock &task);
void attention_merge(float *m, float *l, float *o, float m_b, float l_b, const float *o_b,
                     size_t head_dim);
void attention_finish(const float *o, float l, size_t head_dim, uint16_t *y);

void silu_gate(const float *gate, const float *up, size_t n, uint16_t *y);
void gelu_gate(const float *gate, const float *up, size_t n, uint16_t *y);
void softcap(float *x, size_t n, float cap);

void round_bf16(const float *x, size_t n, uint16_t *y);
void add(const float *x, size_t n, float *y);
void embed(const uint16_t *row, float scale, size_t n, float *y);
void embed_wide(const float *row, float scale, size_t n, float *y);
size_t find_nonfinite(const float *x, size_t n);

} // namespace stasis::kernels::STASIS_REFERENCE
