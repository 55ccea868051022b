// Makes the first table, which is the executable form of NUMERICS.md.
#include "runtime/kernels/reference/reference.h"
#include "runtime/kernels/reference/functions.h"
#include "runtime/kernels/reference/kernels.h"

namespace stasis::kernels::STASIS_REFERENCE {

namespace {

Reference make_reference() {
    Reference made = {};
    made.table.name = "reference";
    add_products(made.table);
    add_quantized(made.table);
    add_norm(made.table);
    add_rope(made.table);
    add_attention(made.table);
    add_activations(made.table);
    add_elementwise(made.table);
    add_recurrent(made.table);
    add_experts(made.table);
    add_draw(made.table);
    made.exp = exp, made.tanh = tanh, made.sigmoid = sigmoid, made.softplus = softplus;
    return made;
}

} // namespace

const Reference &reference() {
    static const Reference made = make_reference();
    return made;
}

} // namespace stasis::kernels::STASIS_REFERENCE
