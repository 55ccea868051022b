// Fills the table of this instruction set.
#include "runtime/kernels/overlay.h"

namespace stasis::kernels::avx2 {

Table overlay(Table table) {
    table.name = "avx2";
    return table;
}

} // namespace stasis::kernels::avx2
