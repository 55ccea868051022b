// Products with weights of type IQ4_XS.
#include "runtime/kernels/generic/blocks/product.h"

namespace stasis::kernels::STASIS_TABLE {

template void multiply_quantized<Integers, Quant::iq4_xs>(const QuantizedMatmul &);

} // namespace stasis::kernels::STASIS_TABLE
