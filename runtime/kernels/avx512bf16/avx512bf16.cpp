// Fills the table of this instruction set.
#include "runtime/kernels/avx512bf16/vector.h"
#include "runtime/kernels/generic/panels/attention.h"
#include "runtime/kernels/generic/panels/product.h"
#include "runtime/kernels/overlay.h"

namespace stasis::kernels::avx512bf16 {

Table overlay(Table table) {
    table.name = "avx512bf16";
    put_panels<Avx512Bf16>(table);
    return table;
}

} // namespace stasis::kernels::avx512bf16
