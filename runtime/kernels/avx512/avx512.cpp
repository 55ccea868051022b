// Fills the table of this instruction set.
#include "runtime/kernels/avx512/vector.h"
#include "runtime/kernels/overlay.h"
#include "runtime/kernels/panels/product.h"

namespace stasis::kernels::avx512 {

Table overlay(Table table) {
    table.name = "avx512";
    table.pack = pack<Avx512>;
    table.packed_bytes = packed_bytes<Avx512>;
    table.matmul = matmul<Avx512>;
    return table;
}

} // namespace stasis::kernels::avx512
