// Coded weights for vectors of this table.
#include "runtime/kernels/generic/panels/coded.h"
#include "runtime/kernels/avx2/vector.h"
#include "runtime/kernels/generic/panels/code.h"
#include "runtime/kernels/generic/panels/kernels.h"

namespace stasis::kernels::avx2 {

void add_coded(Table &table) {
    table.code_strip = code_strip<Avx2>;
    table.matmul_coded = matmul_coded<Avx2>;
}

} // namespace stasis::kernels::avx2
