// What drawing a token does to each logit (C7).
#include <cfloat>

#include "runtime/kernels/generic/lanes/functions.h"
#include "runtime/kernels/generic/lanes/kernels.h"

namespace stasis::kernels::STASIS_TABLE {

namespace {

size_t first_largest(const float *x, size_t n) {
    Lanes maxima = broadcast(x[0]);
    by_lanes(n, [&](size_t i, size_t count) STASIS_STEP {
        const Mask exists = mask_of((1U << count) - 1);
        maxima = larger(select(exists, load(x + i, count), maxima), maxima);
    });
    const Lanes maximum = broadcast(largest_of(maxima));
    for (size_t i = 0; i < n; i += kLanes) {
        const size_t count = i + kLanes <= n ? kLanes : n - i;
        const Lanes part = count == kLanes ? load(x + i) : load(x + i, count);
        const uint32_t reach = bits_of(maximum <= part) & ((1U << count) - 1);
        if (reach != 0) {
            return i + static_cast<size_t>(__builtin_ctz(reach));
        }
    }
    return 0;
}

void draw_powers(const float *logits, size_t n, float temperature, float best, float *scaled,
                 float *powers) {
    const Lanes divisor = broadcast(temperature), highest = broadcast(best), zero = broadcast(0.0F);
    const Lanes floor = broadcast(kDrawFloor), removed = broadcast(-__builtin_inff());
    const Lanes largest = broadcast(FLT_MAX), least = broadcast(-FLT_MAX);
    by_lanes(n, [&](size_t i, size_t count) STASIS_STEP {
        const Lanes logit = load(logits + i, count);
        Lanes l = logit / divisor;
        l = select(l < least, least, l);
        l = select(largest < l, largest, l);
        const Lanes below = l - highest;
        const Lanes power = select(floor <= below, exp(below), zero);
        store(l, scaled + i, count);
        store(select(removed < logit, power, zero), powers + i, count);
    });
}

} // namespace

void add_draw(Table &table) {
    table.first_largest = first_largest;
    table.draw_powers = draw_powers;
}

} // namespace stasis::kernels::STASIS_TABLE
