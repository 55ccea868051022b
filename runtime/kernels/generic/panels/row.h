// One row of x times a matrix (C1). Reading the weights bounds it, so they are read from front to
// back, line after line, as processors prefetch best by themselves. Lanes are kLanes consecutive
// blocks of the rule in a row of weights; the sums of blocks are stored, and added up for kLanes
// rows side by side.
//
// x for this product follows that of the panels in `packed`: for each group of kLanes blocks, chain
// (even, odd) and step, one word of each block. Lanes after the end of the row are +0.
#pragma once

#include "runtime/kernels/generic/panels/strip.h"
#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_TABLE {

template <typename V> inline constexpr size_t kGroupWords = kWords<V> *V::kLanes;

// Bytes of x up to which this is faster than strips of rows, because x stays in the first level of
// caches beside the weights (Zen 4).
inline constexpr size_t kRowBytesMax = 9 * 1024;

// Returns the groups of kLanes blocks of a row, the last of which may be partial; 0 if strips of
// rows serve this depth (product.h).
template <typename V> size_t row_groups(size_t depth) {
    const size_t groups = (depth / kBlock + V::kLanes - 1) / V::kLanes;
    const size_t bytes = groups * kGroupWords<V> * sizeof(uint32_t);
    return depth % kBlock == 0 && depth >= V::kLanes * kBlock && bytes <= kRowBytesMax ? groups : 0;
}

template <typename V> size_t packed_row_bytes(size_t depth) {
    return row_groups<V>(depth) * kGroupWords<V> * sizeof(uint32_t);
}

// Writes x for this product to `to`, from the same row packed for panels.
template <typename V> void pack_row(const uint32_t *packed, size_t depth, uint32_t *to) {
    const size_t blocks = depth / kBlock;
    for (size_t group = 0; group < row_groups<V>(depth); ++group, to += kGroupWords<V>) {
        for (size_t lane = 0; lane < V::kLanes; ++lane) {
            const size_t block = group * V::kLanes + lane;
            for (size_t word = 0; word < kWords<V>; ++word) {
                to[word * V::kLanes + lane] =
                    block < blocks ? packed[block * kWords<V> + word] : uint32_t{0};
            }
        }
    }
}

// Stores the sums of kLanes consecutive blocks of weights that begin at `w`.
template <typename V>
[[gnu::always_inline]] inline void sum_group(const uint16_t *w, const uint32_t *x, float *sums) {
    typename V::Floats even = V::zero(), odd = V::zero();
    constexpr size_t kParts = kBlock / 2 / V::kLanes; // vectors that a block takes
    unroll<kParts>([&]<size_t part>() {
        typename V::Words pairs[V::kLanes];
        unroll<V::kLanes>([&]<size_t block>() {
            pairs[block] = V::load(w + block * kBlock + part * 2 * V::kLanes);
            // Keeps the loads in this order. In the order in which the transpose wants them, Zen 4
            // reads 15 to 30 % less.
            asm volatile("" : "+v"(pairs[block]));
        });
        V::turn(pairs);
        unroll<kSteps<V> / kParts>([&]<size_t i>() {
            const uint32_t *words = x + (part * kSteps<V> / kParts + i) * V::kLanes;
            const typename V::Words *at = pairs + i * V::kPairs;
            even = V::multiply_add(V::load(words), V::even(at), even);
            odd = V::multiply_add(V::load(words + kSteps<V> * V::kLanes), V::odd(at), odd);
        });
    });
    V::store_floats(sums, V::add(even, odd));
}

// Stores the sums of all blocks of a row of weights. A partial group reads on into what follows
// (sums that nobody adds up) if it `may_read_on`; else from a copy.
template <typename V>
[[gnu::flatten]] void sum_row(const uint16_t *w, size_t depth, bool may_read_on, const uint32_t *x,
                              float *sums) {
    constexpr size_t kElements = V::kLanes * kBlock;
    const size_t whole = depth / kElements;
    for (size_t group = 0; group < whole; ++group) {
        sum_group<V>(w + group * kElements, x + group * kGroupWords<V>, sums + group * V::kLanes);
    }
    const size_t rest = depth - whole * kElements;
    if (rest != 0) {
        alignas(64) uint16_t copy[kElements];
        const uint16_t *from = w + whole * kElements;
        if (!may_read_on) {
            __builtin_memset(copy, 0, sizeof copy);
            __builtin_memcpy(copy, from, rest * sizeof(uint16_t));
            from = copy;
        }
        sum_group<V>(from, x + whole * kGroupWords<V>, sums + whole * V::kLanes);
    }
}

// Adds up the sums of `blocks` blocks of kLanes rows, ascending; of each row they are `stride`
// floats apart.
template <typename V>
[[gnu::flatten]] void add_blocks(const float *sums, size_t stride, size_t blocks, float *y) {
    typename V::Floats total = V::zero();
    for (size_t block = 0; block < blocks; block += V::kLanes) {
        typename V::Words rows[V::kLanes];
        unroll<V::kLanes>([&]<size_t n>() { rows[n] = V::load(sums + n * stride + block); });
        V::turn(rows);
        alignas(64) uint32_t turned[V::kLanes][V::kLanes];
        unroll<V::kLanes>([&]<size_t i>() { V::store(turned[i], rows[i]); });
        for (size_t i = 0; i < smaller(V::kLanes, blocks - block); ++i) {
            total = V::add(total, V::load_floats(reinterpret_cast<const float *>(turned[i])));
        }
    }
    V::store_floats(y, total);
}

// Computes the first outputs, whole vectors of them; returns how many. Expects one row of x of a
// depth whose row_groups are not 0.
template <typename V> size_t multiply_row(const Matmul &task) {
    const size_t blocks = task.depth / kBlock, stride = row_groups<V>(task.depth) * V::kLanes;
    const uint32_t *x = static_cast<const uint32_t *>(task.packed) + blocks * kWords<V>;
    auto *sums = static_cast<float *>(task.scratch);
    const size_t outputs = task.outputs / V::kLanes * V::kLanes;
    for (size_t output = 0; output < outputs; output += V::kLanes) {
        for (size_t row = output; row < output + V::kLanes; ++row) {
            // Another row follows that is long enough.
            const bool may_read_on = row + 1 < task.outputs;
            sum_row<V>(task.w + row * task.w_stride, task.depth, may_read_on, x,
                       sums + (row - output) * stride);
        }
        add_blocks<V>(sums, stride, blocks, task.y + output);
    }
    return outputs;
}

} // namespace stasis::kernels::STASIS_TABLE
