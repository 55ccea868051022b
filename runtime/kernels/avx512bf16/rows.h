// A batch of rows by lanes that are its rows (C1): words of weights are broadcast, and vectors of x
// loaded. A row of weights then costs one permutation a block, where lanes that are outputs cost a
// transpose, which takes as long as some ten rows (Zen 4). Lanes without a row cost as much as
// others, so this is for batches that nearly fill them.
#pragma once

#include "runtime/kernels/avx512bf16/vector.h"
#include "runtime/kernels/generic/panels/batch.h"
#include "runtime/kernels/table.h"

namespace stasis::kernels::avx512bf16 {

inline constexpr size_t kRowLanes = Avx512Bf16::kLanes, kGroupRows = Avx512Bf16::kRows;
inline constexpr size_t kBlockWords = kWords<Avx512Bf16>;
static_assert(kRowLanes == 2 * kGroupRows && kBatchRows % kRowLanes == 0);

inline constexpr size_t kTogether = 8;      // outputs whose sums stay in registers
inline constexpr size_t kOrderedBlocks = 8; // ordered at a time: they stay in the first level

// Whether `rows` rows are faster by lanes than by strips: where four of five lanes have a row.
inline bool fill_lanes(size_t rows) {
    const size_t lanes = (rows + kRowLanes - 1) / kRowLanes * kRowLanes;
    return rows <= kBatchRows && 5 * rows >= 4 * lanes;
}

// Two groups of packed x, whose rows are the lanes.
struct LaneRows {
    const uint32_t *x[2];
    size_t rows[2];

    // Word `word` of a block, of each row; 0 in lanes without one.
    __m512i load(size_t word) const {
        __m256i half[2];
        for (size_t i = 0; i < 2; ++i) {
            const auto exist = static_cast<__mmask8>((1U << rows[i]) - 1);
            half[i] = _mm256_maskz_loadu_epi32(exist, x[i] + word * rows[i]);
        }
        return _mm512_inserti64x4(_mm512_castsi256_si512(half[0]), half[1], 1);
    }
};

// The same where every lane has a row.
struct FullLaneRows : LaneRows {
    __m512i load(size_t word) const {
        const auto *first = reinterpret_cast<const __m256i *>(x[0] + word * kGroupRows);
        const auto *second = reinterpret_cast<const __m256i *>(x[1] + word * kGroupRows);
        return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_loadu_si256(first)),
                                  _mm256_loadu_si256(second), 1);
    }
};

// Weights that are to come from memory meanwhile: a line of each of kTogether rows for a block. Not
// fetch_rows (product.h), whose address for each block leaves 0.95 of the speed here; in assembly,
// because gcc 12 drops calls of functions that only prefetch.
struct Coming {
    uintptr_t at; // 0: none
    size_t stride;

    [[gnu::always_inline]] inline void fetch_block() {
        if (at != 0) {
            for (size_t n = 0; n < kTogether; ++n) {
                asm volatile(
                    "prefetcht1 %0" ::"m"(*reinterpret_cast<const char *>(at + n * stride)));
            }
            at += kBlock * sizeof(uint16_t);
        }
    }
};

// Adds the products of `blocks` blocks with the ordered weights w to totals [outputs][kRowLanes].
template <size_t outputs, typename Rows>
[[gnu::always_inline]] inline void add_ordered(Rows rows, const uint32_t *w, size_t blocks,
                                               float *totals, Coming coming) {
    using V = Avx512Bf16;
    V::Floats total[outputs];
    unroll<outputs>([&]<size_t n>() { total[n] = V::load_floats(totals + n * kRowLanes); });
    for (size_t block = 0; block < blocks; ++block) {
        coming.fetch_block();
        V::Floats even[outputs], odd[outputs];
        unroll<outputs>([&]<size_t n>() { even[n] = odd[n] = V::zero(); });
        unroll<kSteps<V>>([&]<size_t step>() {
            const V::Words even_x = rows.load(step), odd_x = rows.load(kSteps<V> + step);
            unroll<outputs>([&]<size_t n>() {
                const uint32_t *word = w + n * kBlockWords + step;
                even[n] = V::multiply_add_broadcast(word, even_x, even[n]);
                odd[n] = V::multiply_add_broadcast(word + kSteps<V>, odd_x, odd[n]);
            });
        });
        unroll<outputs>([&]<size_t n>() { total[n] = V::add(total[n], V::add(even[n], odd[n])); });
        w += outputs * kBlockWords;
        rows.x[0] += kBlockWords * rows.rows[0];
        rows.x[1] += kBlockWords * rows.rows[1];
    }
    unroll<outputs>([&]<size_t n>() { V::store_floats(totals + n * kRowLanes, total[n]); });
}

template <size_t outputs>
[[gnu::flatten]] void multiply_ordered(const LaneRows &rows, const uint32_t *w, size_t blocks,
                                       float *totals, const Coming &coming) {
    if (rows.rows[1] == kGroupRows) {
        add_ordered<outputs>(FullLaneRows{rows}, w, blocks, totals, coming);
    } else {
        add_ordered<outputs>(rows, w, blocks, totals, coming);
    }
}

// Writes the blocks begin .. begin + blocks - 1 of `outputs` rows of weights from `output` on to
// w [blocks][outputs][kBlockWords]: the words of both chains.
template <size_t outputs>
void order_weights(const Matmul &task, size_t output, size_t begin, size_t blocks, uint32_t *w) {
    for (size_t n = 0; n < outputs; ++n) {
        const uint16_t *row = task.w + (output + n) * task.w_stride;
        for (size_t block = 0; block < blocks; ++block) {
            const size_t k = (begin + block) * kBlock;
            uint32_t *to = w + (block * outputs + n) * kBlockWords;
            if (k + kBlock > task.depth) [[unlikely]] {
                uint16_t filled[kBlock] = {};
                __builtin_memcpy(filled, row + k, (task.depth - k) * sizeof(uint16_t));
                Avx512Bf16::store(to, Avx512Bf16::chains(filled));
            } else {
                Avx512Bf16::store(to, Avx512Bf16::chains(row + k));
            }
        }
    }
}

// The outputs output .. output + outputs - 1 for all rows.
template <size_t outputs> void multiply_lanes(const Matmul &task, size_t output) {
    constexpr size_t kAhead = Avx512Bf16::kAhead;
    const size_t blocks = blocks_in(task.depth);
    alignas(64) float totals[kBatchRows / kRowLanes][outputs * kRowLanes];
    alignas(64) uint32_t w[kOrderedBlocks * outputs * kBlockWords];
    clear(totals[0], (task.rows + kRowLanes - 1) / kRowLanes * outputs * kRowLanes);
    for (size_t begin = 0; begin < blocks; begin += kOrderedBlocks) {
        const size_t together = smaller(kOrderedBlocks, blocks - begin);
        order_weights<outputs>(task, output, begin, together, w);
        const size_t ahead = begin * kBlock + kAhead; // beyond the rows' ends lie the next outputs
        const uint16_t *next =
            task.w + output * task.w_stride +
            (ahead < task.depth ? ahead : ahead - task.depth + outputs * task.w_stride);
        Coming coming{outputs == kTogether ? reinterpret_cast<uintptr_t>(next) : 0,
                      task.w_stride * sizeof(uint16_t)};
        for (size_t row = 0; row < task.rows; row += kRowLanes) {
            LaneRows rows;
            for (size_t i = 0; i < 2; ++i) {
                const size_t first = smaller(row + i * kGroupRows, task.rows);
                rows.rows[i] = smaller(kGroupRows, task.rows - first);
                rows.x[i] = static_cast<const uint32_t *>(task.packed) +
                            (first * blocks + begin * rows.rows[i]) * kBlockWords;
            }
            multiply_ordered<outputs>(rows, w, together, totals[row / kRowLanes], coming);
            coming.at = 0; // the first rows have fetched them
        }
    }
    for (size_t row = 0; row < task.rows; ++row) {
        for (size_t n = 0; n < outputs; ++n) {
            task.y[row * task.y_stride + output + n] =
                totals[row / kRowLanes][n * kRowLanes + row % kRowLanes];
        }
    }
}

// The whole product, for rows that fill their lanes.
inline void multiply_by_lanes(const Matmul &task) {
    size_t output = 0;
    for (; output + kTogether <= task.outputs; output += kTogether) {
        multiply_lanes<kTogether>(task, output);
    }
    for (; output < task.outputs; ++output) {
        multiply_lanes<1>(task, output);
    }
}

} // namespace stasis::kernels::avx512bf16
