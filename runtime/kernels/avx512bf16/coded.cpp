// Coded weights for vectors of this table.
#include "runtime/kernels/generic/panels/coded.h"
#include "runtime/kernels/avx512bf16/vector.h"
#include "runtime/kernels/generic/panels/code.h"
#include "runtime/kernels/generic/panels/kernels.h"

namespace stasis::kernels::avx512bf16 {

void add_coded(Table &table) {
    table.code_strip = code_strip<Avx512Bf16>;
    table.matmul_coded = matmul_coded<Avx512Bf16>;
}

} // namespace stasis::kernels::avx512bf16
