// One attention block (C5) as two matrix products: queries with the panel of keys, weights p with
// the panel of values, and between them what lanes/ computes. A group of rows at a time, so that
// what it leaves stays near; the panels are packed once for all groups.
#pragma once

#include "runtime/kernels/lanes/functions.h"
#include "runtime/kernels/panels/product.h"

namespace stasis::kernels::STASIS_TABLE {

// Where the parts of an attention block lie in scratch.
template <typename V> struct AttentionScratch {
    static constexpr size_t kHeadDimMax = 1024;
    static constexpr size_t kPanelWords = kPagePositions * kHeadDimMax / V::kPairs;

    alignas(64) uint32_t keys[kPanelWords];
    uint32_t values[kPanelWords];
    uint32_t weights[V::kRows * kPagePositions / V::kPairs];
    float scores[V::kRows * kPagePositions];
    uint16_t p[V::kRows * kPagePositions];
    float output[V::kRows * kHeadDimMax];
};

// Panels of all outputs, one behind the other: calls work(first output, vectors).
template <typename V, typename Work>
[[gnu::always_inline]] inline void each_panel(size_t outputs, const Work &work) {
    const size_t all = (outputs + V::kLanes - 1) / V::kLanes;
    for (size_t done = 0, vectors; done < all; done += vectors) {
        vectors = panel_vectors<V>(all - done);
        work(done * V::kLanes, vectors);
    }
}

// A panel of `vectors` vectors of dimensions, from `begin` on. Slots that nobody sees are +0.
template <typename V>
[[gnu::flatten]] void pack_values(const AttentionBlock &task, uint64_t seen, size_t begin,
                                  size_t vectors, uint32_t *panel) {
    const size_t width = vectors * V::kLanes;
    for (size_t n = 0; n < vectors; ++n) {
        const size_t at = begin + n * V::kLanes;
        const size_t count = smaller(V::kLanes, task.head_dim - at);
        const auto load = [&](size_t slot) {
            const uint16_t *from = task.values + slot * task.head_dim + at;
            if ((seen >> slot & 1U) == 0) {
                return V::none();
            }
            if (count == V::kLanes) {
                return V::load_wide(from);
            }
            uint16_t padded[V::kLanes] = {};
            __builtin_memcpy(padded, from, count * sizeof(uint16_t));
            return V::load_wide(padded);
        };
        uint32_t *to = panel + n * V::kLanes;
        for (size_t slot = 0; slot < kPagePositions; slot += kBlock) {
            for (size_t step = 0; step < kSteps<V>; ++step) {
                typename V::Words pairs[V::kPairs];
                unroll<V::kPairs>([&]<size_t i>() {
                    const size_t even = slot + 2 * (step * V::kPairs + i);
                    pairs[i] = V::pair(load(even), load(even + 1));
                });
                V::store(to + step * width, V::even(pairs));
                V::store(to + (kSteps<V> + step) * width, V::odd(pairs));
            }
            to += kWords<V> * width;
        }
    }
}

// From one row's products with the keys to its p, m and l.
inline void weigh_row(const AttentionBlock &task, size_t row, const float *products, uint16_t *p) {
    constexpr size_t kVectors = kPagePositions / kLanes;
    const uint64_t visible = task.visible[row];
    Lanes scores[kVectors];
    Lanes largest = broadcast(-__builtin_inff());
    for (size_t i = 0; i < kVectors; ++i) {
        scores[i] = load(products + i * kLanes) * broadcast(task.scale);
        if (task.softcap != 0.0F) {
            const Lanes cap = broadcast(task.softcap);
            scores[i] = cap * tanh(scores[i] / cap);
        }
        const Mask mask = mask_of(static_cast<uint16_t>(visible >> (i * kLanes)));
        largest = select(mask, larger(scores[i], largest), largest);
    }
    const float maximum = largest_of(largest) + 0.0F; // a zero is stored as +0
    Lanes sum = broadcast(0.0F);
    for (size_t i = 0; i < kVectors; ++i) {
        const Lanes rounded = rounded_to_bf16(exp(scores[i] - broadcast(maximum)));
        const Mask mask = mask_of(static_cast<uint16_t>(visible >> (i * kLanes)));
        const Lanes weight = select(mask, rounded, broadcast(0.0F));
        sum = sum + weight;
        store_upper_halves(weight, p + i * kLanes);
    }
    task.maximum[row] = maximum;
    task.sum[row] = sum_of(sum);
}

// The rows of one group against the packed panels.
template <typename V, size_t rows>
void attend_group(const AttentionBlock &task, size_t begin, AttentionScratch<V> &scratch) {
    const size_t blocks = blocks_in(task.head_dim);
    const uint32_t *query = static_cast<const uint32_t *>(task.query) + begin * blocks * kWords<V>;
    clear(scratch.scores, rows * kPagePositions);
    each_panel<V>(kPagePositions, [&](size_t first, size_t vectors) {
        multiply_panel<V, rows>(query, scratch.keys + first * blocks * kWords<V>, vectors, blocks,
                                scratch.scores + first, kPagePositions);
    });
    for (size_t r = 0; r < rows; ++r) {
        if (task.visible[begin + r] != 0) {
            weigh_row(task, begin + r, scratch.scores + r * kPagePositions,
                      scratch.p + r * kPagePositions);
        }
    }
    pack_group<V, rows>(scratch.p, kPagePositions, kPagePositions, scratch.weights);
    constexpr size_t kBlocks = kPagePositions / kBlock;
    const size_t stride = (task.head_dim + V::kLanes - 1) / V::kLanes * V::kLanes;
    clear(scratch.output, rows * stride);
    each_panel<V>(task.head_dim, [&](size_t first, size_t vectors) {
        multiply_panel<V, rows>(scratch.weights, scratch.values + first * kBlocks * kWords<V>,
                                vectors, kBlocks, scratch.output + first, stride);
    });
    for (size_t r = 0; r < rows; ++r) {
        if (task.visible[begin + r] != 0) {
            const float *from = scratch.output + r * stride;
            float *to = task.output + (begin + r) * task.head_dim;
            by_lanes(task.head_dim, [&](size_t i, size_t count) STASIS_STEP {
                store(load(from + i, count) + broadcast(0.0F), to + i, count); // no -0
            });
        }
    }
}

template <typename V> void attention_block(const AttentionBlock &task) {
    static_assert(sizeof(AttentionScratch<V>) <= kScratchBytes);
    uint64_t seen = 0;
    for (size_t row = 0; row < task.rows; ++row) {
        seen |= task.visible[row];
    }
    if (seen == 0) {
        return;
    }
    auto &scratch = *static_cast<AttentionScratch<V> *>(task.scratch);
    const size_t blocks = blocks_in(task.head_dim);
    each_panel<V>(kPagePositions, [&](size_t first, size_t vectors) {
        pack_panel<V>(task.keys + first * task.head_dim, task.head_dim, vectors * V::kLanes,
                      task.head_dim, 0, blocks, scratch.keys + first * blocks * kWords<V>);
    });
    each_panel<V>(task.head_dim, [&](size_t first, size_t vectors) {
        pack_values<V>(task, seen, first, vectors,
                       scratch.values + first * (kPagePositions / kBlock) * kWords<V>);
    });
    for (size_t row = 0; row < task.rows; row += V::kRows) {
        with_rows<V>(task.rows - row,
                     [&]<size_t rows>() { attend_group<V, rows>(task, row, scratch); });
    }
}

} // namespace stasis::kernels::STASIS_TABLE
