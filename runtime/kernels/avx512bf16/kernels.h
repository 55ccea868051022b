// Kernels of this table that are not those of other vectors.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels::avx512bf16 {

Coded code_strip(const CodeStrip &task);
void matmul_coded(const CodedMatmul &task);

} // namespace stasis::kernels::avx512bf16
