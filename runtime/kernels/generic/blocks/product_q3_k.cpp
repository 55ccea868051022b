// Products with weights of type Q3_K.
#include "runtime/kernels/generic/blocks/product.h"

namespace stasis::kernels::STASIS_TABLE {

template void multiply_quantized<Integers, Quant::q3_k>(const QuantizedMatmul &);

} // namespace stasis::kernels::STASIS_TABLE
