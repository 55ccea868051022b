// Enters what this instruction set computes faster.
#include "runtime/kernels/generic/blocks/kernels.h"

namespace stasis::kernels::avx512vnni {

void add_kernels(Table &table) {
    add_blocks(table);
}

} // namespace stasis::kernels::avx512vnni
