// Products with weights in blocks of 32 elements.
#include "runtime/kernels/generic/blocks/product.h"

namespace stasis::kernels::STASIS_TABLE {

template void multiply_quantized<Integers, Quant::q8_0>(const QuantizedMatmul &);
template void multiply_quantized<Integers, Quant::q4_0>(const QuantizedMatmul &);
template void multiply_quantized<Integers, Quant::q4_1>(const QuantizedMatmul &);
template void multiply_quantized<Integers, Quant::q5_0>(const QuantizedMatmul &);
template void multiply_quantized<Integers, Quant::q5_1>(const QuantizedMatmul &);
template void multiply_quantized<Integers, Quant::iq4_nl>(const QuantizedMatmul &);
template void multiply_quantized<Integers, Quant::mxfp4>(const QuantizedMatmul &);

} // namespace stasis::kernels::STASIS_TABLE
