// Fills the table of this instruction set.
#include "runtime/kernels/avx512/vector.h"
#include "runtime/kernels/blocks/kernels.h"
#include "runtime/kernels/lanes/kernels.h"
#include "runtime/kernels/overlay.h"
#include "runtime/kernels/panels/attention.h"
#include "runtime/kernels/panels/product.h"

namespace stasis::kernels::avx512 {

Table overlay(Table table) {
    table.name = "avx512";
    put_panels<Avx512>(table);
    put_blocks(table);
    put_lanes(table);
    return table;
}

} // namespace stasis::kernels::avx512
