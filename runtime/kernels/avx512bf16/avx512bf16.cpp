// Fills the table of this instruction set.
#include "runtime/kernels/avx512bf16/vector.h"
#include "runtime/kernels/overlay.h"
#include "runtime/kernels/panels/attention.h"
#include "runtime/kernels/panels/product.h"

namespace stasis::kernels::avx512bf16 {

Table overlay(Table table) {
    table.name = "avx512bf16";
    table.pack = pack<Avx512Bf16>;
    table.packed_bytes = packed_bytes<Avx512Bf16>;
    table.matmul = matmul<Avx512Bf16>;
    table.attention_block = attention_block<Avx512Bf16>;
    return table;
}

} // namespace stasis::kernels::avx512bf16
