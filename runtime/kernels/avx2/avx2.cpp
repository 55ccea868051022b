// Fills the table of this instruction set.
#include "runtime/kernels/avx2/vector.h"
#include "runtime/kernels/lanes/kernels.h"
#include "runtime/kernels/overlay.h"
#include "runtime/kernels/panels/attention.h"
#include "runtime/kernels/panels/product.h"

namespace stasis::kernels::avx2 {

Table overlay(Table table) {
    table.name = "avx2";
    table.pack = pack<Avx2>;
    table.packed_bytes = packed_bytes<Avx2>;
    table.matmul = matmul<Avx2>;
    table.attention_block = attention_block<Avx2>;
    table.rms_norm = rms_norm;
    table.round_bf16 = round_bf16;
    table.rope = rope;
    table.attention_merge = attention_merge;
    table.attention_finish = attention_finish;
    table.silu_gate = silu_gate;
    table.gelu_gate = gelu_gate;
    table.add = add;
    table.embed = embed;
    table.embed_wide = embed_wide;
    table.softcap = softcap;
    table.find_nonfinite = find_nonfinite;
    return table;
}

} // namespace stasis::kernels::avx2
