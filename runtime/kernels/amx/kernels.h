// The kernels that AMX replaces (table.h), and the permission to run them.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels::amx {

size_t packed_bytes(size_t rows, size_t depth);
void pack(const Pack &task, size_t begin, size_t end);
void matmul(const Matmul &task);
Coded code_strip(const CodeStrip &task);
void matmul_coded(const CodedMatmul &task);
void matmul_quantized(const QuantizedMatmul &task);
void attention_block(const AttentionBlock &task);

// Reports whether this process can use tiles. Asks the kernel, once for the process, to let its
// threads use them.
bool has_tiles();

} // namespace stasis::kernels::amx
