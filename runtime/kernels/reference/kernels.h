// Declares the functions by which each file of this folder enters its kernels into a table.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_REFERENCE {

void add_products(Table &table);    // matmul.cpp
void add_quantized(Table &table);   // quantized.cpp
void add_norm(Table &table);        // norm.cpp
void add_rope(Table &table);        // rope.cpp
void add_attention(Table &table);   // attention.cpp
void add_activations(Table &table); // activation.cpp
void add_elementwise(Table &table); // elementwise.cpp
void add_recurrent(Table &table);   // recurrent.cpp
void add_experts(Table &table);     // experts.cpp
void add_draw(Table &table);        // draw.cpp

void matmul(const Matmul &task); // attention computes its scores with it

} // namespace stasis::kernels::STASIS_REFERENCE
