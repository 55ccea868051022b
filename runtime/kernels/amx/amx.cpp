// Enters what this instruction set computes faster.
#include "runtime/kernels/amx/kernels.h"

namespace stasis::kernels::amx {

void add_kernels(Table &table) {
    table.packed_bytes = packed_bytes;
    table.pack = pack;
    table.matmul = matmul;
    table.code_strip = code_strip;
    table.matmul_coded = matmul_coded;
    table.matmul_quantized = matmul_quantized;
    table.attention_block = attention_block;
}

} // namespace stasis::kernels::amx
