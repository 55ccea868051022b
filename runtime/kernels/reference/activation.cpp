// Gated activations and the soft cap, element by element, with the contract's own functions (C3).
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/reference/functions.h"
#include "runtime/kernels/reference/kernels.h"

namespace stasis::kernels::STASIS_REFERENCE {

namespace {

void silu_gate(const float *gate, const float *up, size_t n, uint16_t *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = f32_to_bf16((gate[i] * sigmoid(gate[i])) * up[i]);
    }
}

// GELU in its tanh form (Hendrycks and Gimpel, 2016), without its cancellation for negative x: x /
// 2 * (1 + tanh(u / 2)) = x * sigmoid(u) with u = 2 sqrt(2 / pi) (x + 0.044715 x^3).
void gelu_gate(const float *gate, const float *up, size_t n, uint16_t *y) {
    for (size_t i = 0; i < n; ++i) {
        const float x = gate[i];
        const float u = x * fma(x * x, 0x1.2444f2p-4F, 0x1.988454p+0F);
        y[i] = f32_to_bf16((x * sigmoid(u)) * up[i]);
    }
}

// NaN stays NaN.
float limited(float x, float low, float high) {
    return x < low ? low : x > high ? high : x;
}

// x * sigmoid(1.702 x) is GELU's other approximation (Hendrycks and Gimpel, 2016).
void limited_gate(const float *gate, const float *up, size_t n, float limit, uint16_t *y) {
    for (size_t i = 0; i < n; ++i) {
        const float x = limited(gate[i], -__builtin_inff(), limit);
        const float factor = limited(up[i], -limit, limit) + 1.0F;
        y[i] = f32_to_bf16((x * sigmoid(x * 0x1.b3b646p+0F)) * factor);
    }
}

void softcap(float *x, size_t n, float cap) {
    for (size_t i = 0; i < n; ++i) {
        x[i] = cap * tanh(x[i] / cap);
    }
}

} // namespace

void add_activations(Table &table) {
    table.silu_gate = silu_gate;
    table.gelu_gate = gelu_gate;
    table.limited_gate = limited_gate;
    table.softcap = softcap;
}

} // namespace stasis::kernels::STASIS_REFERENCE
