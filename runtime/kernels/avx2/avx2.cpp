// Fills the table of this instruction set.
#include "runtime/kernels/avx2/vector.h"
#include "runtime/kernels/generic/blocks/kernels.h"
#include "runtime/kernels/generic/lanes/kernels.h"
#include "runtime/kernels/generic/panels/attention.h"
#include "runtime/kernels/generic/panels/product.h"
#include "runtime/kernels/overlay.h"

namespace stasis::kernels::avx2 {

Table overlay(Table table) {
    table.name = "avx2";
    put_panels<Avx2>(table);
    put_blocks(table);
    put_lanes(table);
    return table;
}

} // namespace stasis::kernels::avx2
