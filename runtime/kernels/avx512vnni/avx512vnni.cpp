// Fills the table of this instruction set.
#include "runtime/kernels/generic/blocks/kernels.h"
#include "runtime/kernels/overlay.h"

namespace stasis::kernels::avx512vnni {

Table overlay(Table table) {
    table.name = "avx512vnni";
    put_blocks(table);
    return table;
}

} // namespace stasis::kernels::avx512vnni
