// Enters what this instruction set computes faster.
#include "runtime/kernels/avx2/vector.h"
#include "runtime/kernels/generic/blocks/kernels.h"
#include "runtime/kernels/generic/lanes/kernels.h"
#include "runtime/kernels/generic/panels/attention.h"
#include "runtime/kernels/generic/panels/kernels.h"
#include "runtime/kernels/generic/panels/product.h"

namespace stasis::kernels::avx2 {

void add_kernels(Table &table) {
    add_panels<Avx2>(table);
    add_coded(table);
    add_blocks(table);
    add_lanes(table);
}

} // namespace stasis::kernels::avx2
