// The kernels written over Lanes, one for each entry of Table (table.h) of that name; avx2.cpp and
// avx512.cpp put them there. Compiled for each of the two from one text.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_TABLE {

void rms_norm(const float *x, const float *weight, size_t n, float eps, float *y);
void round_bf16(const float *x, size_t n, uint16_t *y);
void rope(float *x, const float *cosine, const float *sine, size_t n);

void attention_merge(float *m, float *l, float *o, float m_b, float l_b, const float *o_b,
                     size_t head_dim);
void attention_finish(const float *o, float l, size_t head_dim, uint16_t *y);

void silu_gate(const float *gate, const float *up, size_t n, uint16_t *y);
void gelu_gate(const float *gate, const float *up, size_t n, uint16_t *y);

void add(const float *x, size_t n, float *y);
void embed(const uint16_t *row, float scale, size_t n, float *y);
void embed_wide(const float *row, float scale, size_t n, float *y);
void softcap(float *x, size_t n, float cap);
size_t find_nonfinite(const float *x, size_t n);

} // namespace stasis::kernels::STASIS_TABLE
