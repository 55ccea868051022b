// Fills the table of this instruction set.
#include "runtime/kernels/overlay.h"

namespace stasis::kernels::avx512bf16 {

Table overlay(Table table) {
    table.name = "avx512bf16";
    return table;
}

} // namespace stasis::kernels::avx512bf16
