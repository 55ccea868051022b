// RoPE (Su et al., "RoFormer", 2021) in the layout of the published Llama and Gemma checkpoints:
// element i is paired with element i + n/2.
#include <cassert>

#include "runtime/kernels/reference/arithmetic.h"
#include "runtime/kernels/reference/kernels.h"

namespace stasis::kernels::STASIS_REFERENCE {

namespace {

void rope(float *x, const float *cosine, const float *sine, size_t n) {
    assert(n % 2 == 0);
    const size_t half = n / 2;
    for (size_t i = 0; i < half; ++i) {
        const float a = x[i];
        const float b = x[i + half];
        x[i] = fma(a, cosine[i], -(b * sine[i]));
        x[i + half] = fma(b, cosine[i], a * sine[i]);
    }
}

} // namespace

void add_rope(Table &table) {
    table.rope = rope;
}

} // namespace stasis::kernels::STASIS_REFERENCE
