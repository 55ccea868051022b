// The kernels of this table.
#include "runtime/kernels/avx512bf16/kernels.h"

#include "runtime/kernels/avx512bf16/vector.h"
#include "runtime/kernels/generic/panels/attention.h"
#include "runtime/kernels/generic/panels/product.h"

namespace stasis::kernels::avx512bf16 {

void add_kernels(Table &table) {
    add_panels<Avx512Bf16>(table);
    table.code_strip = code_strip;
    table.matmul_coded = matmul_coded;
}

} // namespace stasis::kernels::avx512bf16
