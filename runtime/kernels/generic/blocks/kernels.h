// The table entries that generic/blocks/ computes, compiled once per instruction set.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_TABLE {

void quantize(const Quantize &task, size_t begin, size_t end);
size_t quantized_bytes(size_t rows, size_t depth, size_t group);
void matmul_quantized(const QuantizedMatmul &task);

inline void put_blocks(Table &table) {
    table.quantize = quantize;
    table.quantized_bytes = quantized_bytes;
    table.matmul_quantized = matmul_quantized;
}

} // namespace stasis::kernels::STASIS_TABLE
