// Fills the table of this instruction set.
#include "runtime/kernels/overlay.h"

namespace stasis::kernels::avx512 {

Table overlay(Table table) {
    table.name = "avx512";
    return table;
}

} // namespace stasis::kernels::avx512
