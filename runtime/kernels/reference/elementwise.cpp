// Kernels of one plain operation per element. Knows no steps of a pass.
#include "runtime/kernels/bf16.h"
#include "runtime/kernels/reference/kernels.h"

namespace stasis::kernels::STASIS_REFERENCE {

namespace {

void round_bf16(const float *x, size_t n, uint16_t *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = f32_to_bf16(x[i]);
    }
}

void add(const float *x, size_t n, float *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = y[i] + x[i];
    }
}

void embed(const uint16_t *row, float scale, size_t n, float *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = bf16_to_f32(row[i]) * scale;
    }
}

void embed_wide(const float *row, float scale, size_t n, float *y) {
    for (size_t i = 0; i < n; ++i) {
        y[i] = row[i] * scale;
    }
}

size_t find_nonfinite(const float *x, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        if ((f32_to_bf16(x[i]) & 0x7F80U) == 0x7F80U) {
            return i;
        }
    }
    return n;
}

} // namespace

void add_elementwise(Table &table) {
    table.round_bf16 = round_bf16;
    table.add = add;
    table.embed = embed;
    table.embed_wide = embed_wide;
    table.find_nonfinite = find_nonfinite;
}

} // namespace stasis::kernels::STASIS_REFERENCE
