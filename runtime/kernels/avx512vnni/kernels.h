// The kernels of VNNI that a table above takes over for some of its own shapes (table.h).
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels::avx512vnni {

void matmul_quantized(const QuantizedMatmul &task);

} // namespace stasis::kernels::avx512vnni
