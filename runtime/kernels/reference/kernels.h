// The files of this folder that hold kernels: each enters its own into a table.
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

void matmul(const Matmul &task); // of which attention computes its scores

} // namespace stasis::kernels::STASIS_REFERENCE
