// Rotary position embedding (Su et al., "RoFormer", 2021) in the layout of the published Llama and
// Gemma checkpoints: element i is paired with element i + n/2.
#include "runtime/kernels/generic/lanes/kernels.h"
#include "runtime/kernels/generic/lanes/lanes.h"

namespace stasis::kernels::STASIS_TABLE {

namespace {

void rope(float *x, const float *cosine, const float *sine, size_t n) {
    float *second = x + n / 2;
    by_lanes(n / 2, [&](size_t i, size_t count) STASIS_STEP {
        const Lanes a = load(x + i, count);
        const Lanes b = load(second + i, count);
        const Lanes c = load(cosine + i, count);
        const Lanes s = load(sine + i, count);
        store(fma(a, c, -(b * s)), x + i, count);
        store(fma(b, c, a * s), second + i, count);
    });
}

} // namespace

void add_rope(Table &table) {
    table.rope = rope;
}

} // namespace stasis::kernels::STASIS_TABLE
