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

// Asks the kernel, once for the process, to let its threads use tiles. False if it refuses (an old
// kernel, or a host that runs under a filter).
bool request_permission();

} // namespace stasis::kernels::amx
