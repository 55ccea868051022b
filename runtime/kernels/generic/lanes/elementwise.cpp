// Kernels that do one plain operation per element.
#include "runtime/kernels/generic/lanes/kernels.h"
#include "runtime/kernels/generic/lanes/lanes.h"

namespace stasis::kernels::STASIS_TABLE {

namespace {

void round_bf16(const float *x, size_t n, uint16_t *y) {
    by_lanes(n, [&](size_t i, size_t count)
                    STASIS_STEP { store_bf16(load(x + i, count), y + i, count); });
}

void add(const float *x, size_t n, float *y) {
    by_lanes(n, [&](size_t i, size_t count)
                    STASIS_STEP { store(load(y + i, count) + load(x + i, count), y + i, count); });
}

void embed(const uint16_t *row, float scale, size_t n, float *y) {
    const Lanes factor = broadcast(scale);
    by_lanes(n, [&](size_t i, size_t count)
                    STASIS_STEP { store(load_bf16(row + i, count) * factor, y + i, count); });
}

void embed_wide(const float *row, float scale, size_t n, float *y) {
    const Lanes factor = broadcast(scale);
    by_lanes(n, [&](size_t i, size_t count)
                    STASIS_STEP { store(load(row + i, count) * factor, y + i, count); });
}

size_t find_nonfinite(const float *x, size_t n) {
    const Lanes limit = broadcast(0x1.ffp+127F); // the first number that rounds to infinity
    for (size_t i = 0; i < n; i += kLanes) {
        const Lanes part = i + kLanes <= n ? load(x + i) : load(x + i, n - i);
        const uint32_t finite = bits_of(magnitude(part) < limit);
        if (finite != 0xFFFFU) {
            return i + static_cast<size_t>(__builtin_ctz(~finite));
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

} // namespace stasis::kernels::STASIS_TABLE
