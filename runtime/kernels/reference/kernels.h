// The files of this folder that hold kernels: each enters its own into a table.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_REFERENCE {

void add_products(Table &table);    // matmul.cpp: pack, packed_bytes, matmul
void add_quantized(Table &table);   // quantized.cpp: the same of integer weights, embed_quantized
void add_norm(Table &table);        // norm.cpp: rms_norm
void add_rope(Table &table);        // rope.cpp: rope
void add_attention(Table &table);   // attention.cpp: attention_block, _merge and _finish
void add_activations(Table &table); // activation.cpp: silu_gate, gelu_gate, softcap
void add_elementwise(Table &table); // elementwise.cpp: add, embed, embed_wide and rounding

void matmul(const Matmul &task); // of which attention computes its scores

} // namespace stasis::kernels::STASIS_REFERENCE
