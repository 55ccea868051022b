// The kernels written over Lanes, one for each entry of Table (table.h) of that name. Compiled for
// avx2 and avx512 from one text.
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

[[gnu::always_inline]] inline void put_lanes(Table &table) {
    table.rms_norm = rms_norm;
    table.round_bf16 = round_bf16;
    table.rope = rope;
    table.attention_merge = attention_merge;
    table.attention_finish = attention_finish;
    table.silu_gate = silu_gate;
    table.gelu_gate = gelu_gate;
    table.add = add;
    table.embed = embed;
    table.embed_wide = embed_wide;
    table.softcap = softcap;
    table.find_nonfinite = find_nonfinite;
}

} // namespace stasis::kernels::STASIS_TABLE
