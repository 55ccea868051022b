// One row of x times a matrix (C1). Reading the weights bounds it, so they are read from front to
// back, line after line. Lanes are consecutive blocks of the rule in a row of weights, a group of
// kGroupBlocks, or both chains of each of half as many; the blocks that are left at the end of a
// row share a group with those of the next rows. The sums of blocks are stored, and added up for
// kLanes rows side by side.
//
// x for this product follows that of the panels in `packed`: for each group the vectors that meet
// those of its turned weights. The last group repeats the blocks that are left.
#pragma once

#include "runtime/kernels/generic/panels/strip.h"
#include "runtime/kernels/read_ahead.h"
#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_TABLE {

template <typename V> inline constexpr bool kLanesAreChains = V::kGroupBlocks != V::kLanes;
template <typename V> inline constexpr size_t kGroupWords = kWords<V> *V::kGroupBlocks;

// Bytes of x up to which this is faster than strips of rows, because x stays in the first level of
// caches beside the weights (Zen 4).
inline constexpr size_t kRowBytesMax = 9 * 1024;
// Blocks left at the end of a row up to which reading goes on undisturbed in the next row: eight
// that are left out at first cost half the speed (Zen 4).
inline constexpr size_t kBlocksLeftMax = 4;

// Blocks of a row that do not fill a group.
template <typename V> size_t blocks_left(size_t depth) {
    return depth / kBlock % V::kGroupBlocks;
}

// Returns the groups that a row begins or shares; 0 if strips of rows serve this depth (product.h).
template <typename V> size_t row_groups(size_t depth) {
    const size_t left = blocks_left<V>(depth);
    const size_t groups = depth / kBlock / V::kGroupBlocks + (left != 0 ? 1 : 0);
    const bool whole = depth % kBlock == 0 && depth >= V::kGroupBlocks * kBlock;
    const bool shared = left == 0 || (V::kGroupBlocks % left == 0 && left <= kBlocksLeftMax);
    const bool near = groups * kGroupWords<V> * sizeof(uint32_t) <= kRowBytesMax;
    return whole && shared && near ? groups : 0;
}

// Bytes that x for this product takes at most at any depth up to `depth`, so that memory for the
// greatest depth of a model serves the others.
template <typename V> size_t packed_row_bytes(size_t depth) {
    const size_t groups = (blocks_in(depth) + V::kGroupBlocks - 1) / V::kGroupBlocks;
    const bool any = depth >= V::kGroupBlocks * kBlock;
    return any ? smaller(groups * kGroupWords<V> * sizeof(uint32_t), kRowBytesMax) : 0;
}

// Writes x for this product to `to`, from the same row packed for panels.
template <typename V> void pack_row(const uint32_t *packed, size_t depth, uint32_t *to) {
    const size_t whole = depth / kBlock / V::kGroupBlocks;
    for (size_t group = 0; group < row_groups<V>(depth); ++group) {
        const size_t blocks = group < whole ? V::kGroupBlocks : blocks_left<V>(depth);
        const uint32_t *from = packed + group * kGroupWords<V>;
        for (size_t at = 0; at < kGroupWords<V>; ++at) {
            size_t block = at % V::kLanes, word = at / V::kLanes;
            if constexpr (kLanesAreChains<V>) {
                word += V::chain_of(at % V::kLanes) * kSteps<V>;
                block = V::block_of(at % V::kLanes);
            }
            *to++ = from[block % blocks * kWords<V> + word];
        }
    }
}

// Stores the sums of the blocks of a group. block(n) is the address of the weights of block n; the
// addresses ascend.
template <typename V, typename Block>
[[gnu::always_inline]] inline void sum_group(const uint32_t *x, const Block &block, float *sums) {
    if constexpr (kLanesAreChains<V>) {
        V::sum_chains(x, block, sums);
        return;
    }
    typename V::Floats even = V::zero(), odd = V::zero();
    constexpr size_t kParts = kBlock / 2 / V::kLanes; // vectors that a block takes
    unroll<kParts>([&]<size_t part>() {
        typename V::Words pairs[V::kLanes];
        unroll<V::kLanes>([&]<size_t n>() {
            pairs[n] = V::load(block(n) + part * 2 * V::kLanes);
            // Keeps the loads in this order. In the order in which the transpose wants them, Zen 4
            // reads 15 to 30 % less.
            asm volatile("" : "+v"(pairs[n]));
        });
        V::turn_pairs(pairs);
        unroll<kSteps<V> / kParts>([&]<size_t i>() {
            const uint32_t *words = x + (part * kSteps<V> / kParts + i) * V::kLanes;
            const typename V::Words *at = pairs + i * V::kPairs;
            even = V::multiply_add(V::load(words), V::even(at), even);
            odd = V::multiply_add(V::load(words + kSteps<V> * V::kLanes), V::odd(at), odd);
        });
    });
    V::store_floats(sums, V::add(even, odd));
}

// Prefetches the lines of a group that begins 8 KiB further on, wherever that is. In assembly,
// because gcc 12 drops calls of functions that only prefetch.
template <typename V> [[gnu::always_inline]] inline void fetch_group(const uint16_t *group) {
    constexpr size_t kAheadBytes = 8192;
    const auto *at = reinterpret_cast<const char *>(group) + kAheadBytes;
    for (size_t line = 0; line < V::kGroupBlocks * kBlock * sizeof(uint16_t); line += 64) {
        asm volatile("prefetcht1 %0" ::"m"(at[line]));
    }
}

// Stores the sums of the whole groups of a row of weights.
template <typename V>
[[gnu::flatten]] void sum_row(const uint16_t *w, size_t groups, bool fetch, const uint32_t *x,
                              float *sums) {
    for (size_t group = 0; group < groups; ++group) {
        const uint16_t *first = w + group * V::kGroupBlocks * kBlock;
        if (fetch) {
            fetch_group<V>(first);
        }
        const auto block = [&](size_t n) { return first + n * kBlock; };
        sum_group<V>(x + group * kGroupWords<V>, block, sums + group * V::kGroupBlocks);
    }
}

// Stores the sums of the blocks that are left of kGroupBlocks / `left` rows, whose weights and sums
// are `w_stride` and `stride` apart.
template <typename V>
[[gnu::flatten]] void sum_left(const uint16_t *w, size_t w_stride, size_t left, const uint32_t *x,
                               float *sums, size_t stride) {
    const uint16_t *blocks[V::kGroupBlocks];
    for (size_t n = 0; n < V::kGroupBlocks; ++n) {
        blocks[n] = w + n / left * w_stride + n % left * kBlock;
    }
    float of_group[V::kGroupBlocks];
    sum_group<V>(
        x, [&](size_t n) { return blocks[n]; }, of_group);
    for (size_t n = 0; n < V::kGroupBlocks; n += left) {
        __builtin_memcpy(sums + n / left * stride, of_group + n, left * sizeof(float));
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
    const size_t blocks = task.depth / kBlock;
    const size_t whole = blocks / V::kGroupBlocks, left = blocks_left<V>(task.depth);
    const size_t shared = left != 0 ? V::kGroupBlocks / left : 1; // rows that share a group
    const size_t stride = (blocks + V::kLanes - 1) / V::kLanes * V::kLanes;
    const uint32_t *x = static_cast<const uint32_t *>(task.packed) + blocks * kWords<V>;
    auto *sums = static_cast<float *>(task.scratch);
    const bool fetch = read_ahead() != ReadAhead::alone;
    const size_t outputs = task.outputs / V::kLanes * V::kLanes;
    for (size_t output = 0; output < outputs; output += V::kLanes) {
        for (size_t row = 0; row < V::kLanes; ++row) {
            const uint16_t *w = task.w + (output + row) * task.w_stride;
            sum_row<V>(w, whole, fetch, x, sums + row * stride);
            if (left != 0 && (row + 1) % shared == 0) {
                const size_t first = row + 1 - shared, end = whole * V::kGroupBlocks;
                sum_left<V>(task.w + (output + first) * task.w_stride + end * kBlock, task.w_stride,
                            left, x + whole * kGroupWords<V>, sums + first * stride + end, stride);
            }
        }
        add_blocks<V>(sums, stride, blocks, task.y + output);
    }
    return outputs;
}

} // namespace stasis::kernels::STASIS_TABLE
