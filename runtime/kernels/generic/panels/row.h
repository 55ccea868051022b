// One row of x times a matrix (C1). Reading the weights bounds it, so they are read from few places
// at a time, each from front to back: lanes are four consecutive blocks of the rule in each of
// kLanes / 4 rows. The sums of blocks are stored, and added up for kLanes rows side by side.
//
// x for this product follows that of the panels in `packed`: for each four blocks, chain (even,
// odd) and step, one word of each block. One load repeats these four words for every row.
#pragma once

#include "runtime/kernels/generic/panels/strip.h"
#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_TABLE {

inline constexpr size_t kQuad = 4; // blocks of a row that lie side by side in lanes

// Prefetches a line into the second level of caches. The address may be any. In assembly, because
// gcc 12 drops calls of functions that only prefetch.
[[gnu::always_inline]] inline void fetch_far(const void *line) {
    asm volatile("prefetcht1 %0" ::"m"(*static_cast<const char *>(line)));
}

// Returns whether rows of this depth are computed here; strips of rows serve the others (product.h).
// Scratch memory holds the sums of kLanes rows.
template <typename V> bool is_by_blocks(size_t depth) {
    return depth % (kQuad * kBlock) == 0 &&
           depth / kBlock * V::kLanes * sizeof(float) <= kScratchBytes;
}

template <typename V> size_t packed_row_bytes(size_t depth) {
    return is_by_blocks<V>(depth) ? depth / kBlock * kWords<V> * sizeof(uint32_t) : 0;
}

// Writes x for this product to `to`, from the same row packed for panels.
template <typename V> void pack_row(const uint32_t *packed, size_t depth, uint32_t *to) {
    for (size_t quad = 0; quad < depth / (kQuad * kBlock); ++quad) {
        for (size_t word = 0; word < kWords<V>; ++word) {
            for (size_t block = 0; block < kQuad; ++block) {
                *to++ = packed[(quad * kQuad + block) * kWords<V> + word];
            }
        }
    }
}

// Stores the sums of all blocks of kLanes / 4 rows of weights that are `stride` elements apart.
template <typename V>
[[gnu::flatten]] void sum_blocks(const uint16_t *w, size_t stride, size_t depth, const uint32_t *x,
                                 float *sums) {
    constexpr size_t kRowsRead = V::kLanes / kQuad;
    // Measured on Zen 4: into the second level of caches; into the first, half the speed.
    constexpr size_t kAhead = 1024; // elements of each row
    for (size_t k = 0; k < depth; k += kQuad * kBlock) {
        // Beyond the end of a row begins the one that is read kRowsRead rows later.
        const size_t ahead = k + kAhead;
        const uint16_t *fetched = w + (ahead < depth ? ahead : ahead - depth + kRowsRead * stride);
        unroll<V::kLanes>([&]<size_t block>() {
            fetch_far(fetched + block / kQuad * stride + block % kQuad * kBlock);
        });

        typename V::Floats even = V::zero(), odd = V::zero();
        constexpr size_t kParts = kBlock / 2 / V::kLanes; // vectors that a block takes
        unroll<kParts>([&]<size_t part>() {
            typename V::Words pairs[V::kLanes];
            unroll<V::kLanes>([&]<size_t block>() {
                pairs[block] = V::load(w + block / kQuad * stride + k + block % kQuad * kBlock +
                                       part * 2 * V::kLanes);
            });
            V::turn(pairs);
            unroll<kSteps<V> / kParts>([&]<size_t i>() {
                const uint32_t *words = x + (part * kSteps<V> / kParts + i) * kQuad;
                const typename V::Words *at = pairs + i * V::kPairs;
                even = V::multiply_add(V::repeat_quad(words), V::even(at), even);
                odd = V::multiply_add(V::repeat_quad(words + kSteps<V> * kQuad), V::odd(at), odd);
            });
        });
        V::store_floats(sums, V::add(even, odd));
        sums += V::kLanes;
        x += kWords<V> * kQuad;
    }
}

// Adds up the sums of kLanes rows, block by block, ascending. The sums of a vector are those of four
// blocks in kLanes / 4 rows; sums[vector of rows][four blocks].
template <typename V>
[[gnu::flatten]] void add_blocks(const float *sums, size_t blocks, float *y) {
    const size_t stride = blocks / kQuad * V::kLanes;
    typename V::Floats total = V::zero();
    for (size_t at = 0; at < stride; at += V::kLanes) {
        typename V::Floats quads[kQuad];
        unroll<kQuad>([&]<size_t q>() { quads[q] = V::load_floats(sums + q * stride + at); });
        V::turn_quads(quads);
        unroll<kQuad>([&]<size_t block>() { total = V::add(total, quads[block]); });
    }
    V::store_floats(y, total);
}

// Computes the first outputs, whole vectors of them; returns how many. Expects one row of x of a
// depth that is_by_blocks.
template <typename V> size_t multiply_row(const Matmul &task) {
    const size_t blocks = task.depth / kBlock;
    const uint32_t *x = static_cast<const uint32_t *>(task.packed) + blocks * kWords<V>;
    auto *sums = static_cast<float *>(task.scratch);
    const size_t outputs = task.outputs / V::kLanes * V::kLanes;
    for (size_t output = 0; output < outputs; output += V::kLanes) {
        for (size_t quad = 0; quad < kQuad; ++quad) {
            const size_t row = output + quad * (V::kLanes / kQuad);
            sum_blocks<V>(task.w + row * task.w_stride, task.w_stride, task.depth, x,
                          sums + quad * (blocks / kQuad * V::kLanes));
        }
        add_blocks<V>(sums, blocks, task.y + output);
    }
    return outputs;
}

} // namespace stasis::kernels::STASIS_TABLE
