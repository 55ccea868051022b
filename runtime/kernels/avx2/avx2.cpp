// Fills the table of this instruction set.
#include "runtime/kernels/avx2/vector.h"
#include "runtime/kernels/blocks/kernels.h"
#include "runtime/kernels/lanes/kernels.h"
#include "runtime/kernels/overlay.h"
#include "runtime/kernels/panels/attention.h"
#include "runtime/kernels/panels/product.h"

namespace stasis::kernels::avx2 {

Table overlay(Table table) {
    table.name = "avx2";
    put_panels<Avx2>(table);
    put_blocks(table);
    put_lanes(table);
    return table;
}

} // namespace stasis::kernels::avx2
