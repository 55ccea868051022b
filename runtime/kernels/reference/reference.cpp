// Fills the first table: the executable form of NUMERICS.md.
#include "runtime/kernels/reference/reference.h"
#include "runtime/kernels/reference/functions.h"
#include "runtime/kernels/reference/kernels.h"

namespace stasis::kernels::STASIS_REFERENCE {

const Reference kReference = {
    .table =
        {
            .name = "reference",
            .pack = pack,
            .packed_bytes = packed_bytes,
            .matmul = matmul,
            .quantize = quantize,
            .quantized_bytes = quantized_bytes,
            .matmul_quantized = matmul_quantized,
            .embed_quantized = embed_quantized,
            .rms_norm = rms_norm,
            .round_bf16 = round_bf16,
            .rope = rope,
            .attention_block = attention_block,
            .attention_merge = attention_merge,
            .attention_finish = attention_finish,
            .silu_gate = silu_gate,
            .gelu_gate = gelu_gate,
            .add = add,
            .embed = embed,
            .embed_wide = embed_wide,
            .softcap = softcap,
            .find_nonfinite = find_nonfinite,
        },
    .exp = exp,
    .tanh = tanh,
    .sigmoid = sigmoid,
};

} // namespace stasis::kernels::STASIS_REFERENCE
