// Products with weights of any type.
#include "runtime/kernels/generic/blocks/kernels.h"
#include "runtime/kernels/generic/blocks/product.h"

namespace stasis::kernels::STASIS_TABLE {

void matmul_quantized(const QuantizedMatmul &task) {
    switch (task.type) {
    case Quant::q8_0:
        return multiply_quantized<Integers, Quant::q8_0>(task);
    case Quant::q4_0:
        return multiply_quantized<Integers, Quant::q4_0>(task);
    case Quant::q4_1:
        return multiply_quantized<Integers, Quant::q4_1>(task);
    case Quant::q5_0:
        return multiply_quantized<Integers, Quant::q5_0>(task);
    case Quant::q5_1:
        return multiply_quantized<Integers, Quant::q5_1>(task);
    case Quant::q4_k:
        return multiply_quantized<Integers, Quant::q4_k>(task);
    case Quant::q5_k:
        return multiply_quantized<Integers, Quant::q5_k>(task);
    case Quant::q6_k:
        return multiply_quantized<Integers, Quant::q6_k>(task);
    case Quant::q2_k:
        return multiply_quantized<Integers, Quant::q2_k>(task);
    case Quant::q3_k:
        return multiply_quantized<Integers, Quant::q3_k>(task);
    case Quant::iq4_nl:
        return multiply_quantized<Integers, Quant::iq4_nl>(task);
    case Quant::iq4_xs:
        return multiply_quantized<Integers, Quant::iq4_xs>(task);
    case Quant::mxfp4:
        return multiply_quantized<Integers, Quant::mxfp4>(task);
    }
}

void add_quantized_products(Table &table) {
    table.matmul_quantized = matmul_quantized;
}

} // namespace stasis::kernels::STASIS_TABLE
