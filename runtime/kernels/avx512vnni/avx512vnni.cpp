// Fills the table of this instruction set.
#include "runtime/kernels/avx512vnni/integers.h"
#include "runtime/kernels/avx512vnni/kernels.h"
#include "runtime/kernels/blocks/product.h"
#include "runtime/kernels/overlay.h"

namespace stasis::kernels::avx512vnni {

void matmul_quantized(const QuantizedMatmul &task) {
    matmul_quantized<Avx512Vnni>(task);
}

Table overlay(Table table) {
    table.name = "avx512vnni";
    table.matmul_quantized = matmul_quantized;
    return table;
}

} // namespace stasis::kernels::avx512vnni
