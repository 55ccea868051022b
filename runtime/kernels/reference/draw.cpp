// What drawing a token does to each logit (C7). Knows no filters.
#include <cfloat>

#include "runtime/kernels/reference/functions.h"
#include "runtime/kernels/reference/kernels.h"

namespace stasis::kernels::STASIS_REFERENCE {

namespace {

size_t first_largest(const float *x, size_t n) {
    size_t found = 0;
    for (size_t i = 1; i < n; ++i) {
        found = x[i] > x[found] ? i : found;
    }
    return found;
}

void draw_powers(const float *logits, size_t n, float temperature, float best, float *scaled,
                 float *powers) {
    for (size_t i = 0; i < n; ++i) {
        const float logit = logits[i], quotient = logit / temperature;
        const float l = quotient < -FLT_MAX ? -FLT_MAX : quotient > FLT_MAX ? FLT_MAX : quotient;
        const float below = l - best;
        scaled[i] = l;
        powers[i] = below >= kDrawFloor && logit > -__builtin_inff() ? exp(below) : 0.0F;
    }
}

} // namespace

void add_draw(Table &table) {
    table.first_largest = first_largest;
    table.draw_powers = draw_powers;
}

} // namespace stasis::kernels::STASIS_REFERENCE
