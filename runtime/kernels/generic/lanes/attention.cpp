// What attention does with a block's partial (C5): the merge and the division.
#include "runtime/kernels/generic/lanes/functions.h"
#include "runtime/kernels/generic/lanes/kernels.h"

namespace stasis::kernels::STASIS_TABLE {

namespace {

void attention_merge(float *m, float *l, float *o, float m_b, float l_b, const float *o_b,
                     size_t head_dim) {
    const float maximum = m_b > *m ? m_b : *m;
    const Lanes alpha = exp(broadcast(*m - maximum));
    const Lanes beta = exp(broadcast(m_b - maximum));
    *m = maximum;
    *l = first_of(fma(broadcast(l_b), beta, broadcast(*l) * alpha));
    by_lanes(head_dim, [&](size_t i, size_t count) STASIS_STEP {
        store(fma(load(o_b + i, count), beta, load(o + i, count) * alpha), o + i, count);
    });
}

void attention_finish(const float *o, float l, size_t head_dim, uint16_t *y) {
    const Lanes divisor = broadcast(l);
    by_lanes(head_dim, [&](size_t i, size_t count)
                           STASIS_STEP { store_bf16(load(o + i, count) / divisor, y + i, count); });
}

} // namespace

void add_merge(Table &table) {
    table.attention_merge = attention_merge;
    table.attention_finish = attention_finish;
}

} // namespace stasis::kernels::STASIS_TABLE
