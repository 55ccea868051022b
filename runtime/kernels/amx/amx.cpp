// Fills the table of this instruction set.
#include "runtime/kernels/amx/kernels.h"
#include "runtime/kernels/overlay.h"

namespace stasis::kernels::amx {

Table overlay(Table table) {
    table.name = "amx";
    table.packed_bytes = packed_bytes;
    table.pack = pack;
    table.matmul = matmul;
    table.matmul_quantized = matmul_quantized;
    table.attention_block = attention_block;
    return table;
}

} // namespace stasis::kernels::amx
