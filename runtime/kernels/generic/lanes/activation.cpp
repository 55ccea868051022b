// Gated activations and the soft cap from the contract's own functions (C3); gelu's form is derived
// in reference/activation.cpp.
#include "runtime/kernels/generic/lanes/functions.h"
#include "runtime/kernels/generic/lanes/kernels.h"

namespace stasis::kernels::STASIS_TABLE {

namespace {

void silu_gate(const float *gate, const float *up, size_t n, uint16_t *y) {
    by_lanes(n, [&](size_t i, size_t count) STASIS_STEP {
        const Lanes x = load(gate + i, count);
        store_bf16((x * sigmoid(x)) * load(up + i, count), y + i, count);
    });
}

void gelu_gate(const float *gate, const float *up, size_t n, uint16_t *y) {
    by_lanes(n, [&](size_t i, size_t count) STASIS_STEP {
        const Lanes x = load(gate + i, count);
        const Lanes u = x * fma(x * x, broadcast(0x1.2444f2p-4F), broadcast(0x1.988454p+0F));
        store_bf16((x * sigmoid(u)) * load(up + i, count), y + i, count);
    });
}

[[gnu::always_inline]] inline Lanes at_most(Lanes x, Lanes most) {
    return select(most < x, most, x);
}

void limited_gate(const float *gate, const float *up, size_t n, float limit, uint16_t *y) {
    const Lanes most = broadcast(limit), least = broadcast(-limit);
    by_lanes(n, [&](size_t i, size_t count) STASIS_STEP {
        const Lanes x = at_most(load(gate + i, count), most),
                    u = at_most(load(up + i, count), most);
        const Lanes factor = select(u < least, least, u) + broadcast(1.0F);
        store_bf16((x * sigmoid(x * broadcast(0x1.b3b646p+0F))) * factor, y + i, count);
    });
}

void softcap(float *x, size_t n, float cap) {
    const Lanes limit = broadcast(cap);
    by_lanes(n, [&](size_t i, size_t count)
                    STASIS_STEP { store(limit * tanh(load(x + i, count) / limit), x + i, count); });
}

} // namespace

void add_activations(Table &table) {
    table.silu_gate = silu_gate;
    table.gelu_gate = gelu_gate;
    table.limited_gate = limited_gate;
    table.softcap = softcap;
}

} // namespace stasis::kernels::STASIS_TABLE
