// Enters what this instruction set computes faster.
#include "runtime/kernels/avx512bf16/vector.h"
#include "runtime/kernels/generic/panels/attention.h"
#include "runtime/kernels/generic/panels/kernels.h"
#include "runtime/kernels/generic/panels/product.h"

namespace stasis::kernels::avx512bf16 {

void add_kernels(Table &table) {
    add_panels<Avx512Bf16>(table);
    add_coded(table);
}

} // namespace stasis::kernels::avx512bf16
