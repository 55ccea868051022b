// The files of this folder that hold kernels: each enters its own into a table.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_TABLE {

void add_quantize(Table &table);           // quantize.cpp
void add_quantized_products(Table &table); // matmul.cpp

[[gnu::always_inline]] inline void add_blocks(Table &table) {
    add_quantize(table);
    add_quantized_products(table);
}

} // namespace stasis::kernels::STASIS_TABLE
