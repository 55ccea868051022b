// Products of integer weights with quantized activations (C8), for any vector type: strips of
// weights meet a few rows at a time, whose sums stay in registers along the whole depth.
#pragma once

#include "runtime/kernels/generic/blocks/integers.h"
#include "runtime/kernels/generic/blocks/packed.h"
#include "runtime/kernels/generic/blocks/strip.h"
#include "runtime/kernels/generic/panels/tile.h"
#include "runtime/kernels/read_ahead.h"
#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_TABLE {

// How many bytes ahead a strip is prefetched into the second level of caches, and into the first;
// 0: it is not.
struct Ahead {
    size_t far = 0, near = 0;
};

// Types of which it changes whether a few rows gain by a prefetch. Q8_0 and Q4_0 lose 2 to 3 % by
// finding out; other types were not measured.
template <Quant type>
inline constexpr bool kPaced = type == Quant::q2_k || type == Quant::q3_k || type == Quant::q4_k ||
                               type == Quant::q5_k || type == Quant::q6_k;

// Returns what helps the first of `rows` rows to meet a strip. `fetch`: see Pace.
inline Ahead ahead_of(size_t rows, bool fetch) {
    switch (read_ahead()) {
    case ReadAhead::near:
        return {.near = 1024};
    case ReadAhead::far_and_near:
        return {.far = 8192, .near = 2048};
    case ReadAhead::alone:
        break;
    }
    // With more rows the processor computes for too long to read ahead by itself: 8 rows are 1.2 to
    // 1.6 times as fast on Zen 4, by type.
    return {.far = rows > kFewRows || fetch ? size_t{16384} : 0};
}

// Prefetches what follows a block in memory, which need not be part of the matrix. In assembly,
// which stays where it is: gcc 12 gathers prefetches, and drops calls of functions that do nothing
// else.
template <size_t bytes>
[[gnu::always_inline]] inline void fetch_ahead(const uint8_t *block, Ahead ahead) {
    for (size_t line = 0; ahead.far != 0 && line < bytes; line += 64) {
        asm volatile("prefetcht1 %0" ::"m"(block[ahead.far + line]));
    }
    for (size_t line = 0; ahead.near != 0 && line < bytes; line += 64) {
        asm volatile("prefetcht0 %0" ::"m"(block[ahead.near + line]));
    }
}

// Some rows of one group by a strip.
template <typename V, Quant type, size_t rows> struct StripTile {
    using Words = typename V::Words;
    using Ints = typename V::Ints;
    using Floats = typename V::Floats;
    using Block = WeightBlock<V, type>;
    static constexpr Kind kKind = kind_of(type);
    static constexpr size_t kElements = quant_block(type).elements;
    static constexpr size_t kParts = kStripOutputs / V::kLanes;
    // Whether u stays where it is in a byte: what it adds up to is then a multiple of u's sum, and
    // only a dot product of 32 bits holds that.
    static constexpr bool kInPlace = V::kUnsigned && type == Quant::q2_k;

    const Activations &x;

    static Words word(const void *at) { return V::broadcast(static_cast<const uint32_t *>(at)); }

    // sum[r] += u * q (kInPlace: times 2^bit) over the words begin .. begin + count - 1 of a block.
    template <size_t begin, size_t count>
    [[gnu::always_inline]] static inline void dot(const Block &w, const int8_t *q,
                                                  Words (&sum)[rows]) {
        unroll<count>([&]<size_t i>() {
            const Words u = w.template integers<begin + i, kInPlace>();
            unroll<rows>([&]<size_t r>() {
                const int8_t *four = q + r * kElements + (begin + i) * 4;
                sum[r] = V::template dot<kKind.has_sign>(sum[r], u, four);
            });
        });
    }

    // sum[r] = u * q over the words of part j, times 2^bit, which is returned.
    template <size_t j>
    [[gnu::always_inline]] static inline int part(const Block &w, const int8_t *q,
                                                  Words (&sum)[rows]) {
        constexpr size_t kWordsOf = kElements / 4 / kKind.parts;
        unroll<rows>([&]<size_t r>() { sum[r] = (Words)Ints{}; });
        dot<j * kWordsOf, kWordsOf>(w, q, sum);
        return kInPlace ? place_of(type, j * kWordsOf).bit : 0;
    }

    [[gnu::always_inline]] inline void add(const Words (&sum)[rows], Floats d, size_t entry,
                                           Floats (&total)[rows]) const {
        const float *scale = x.scales(entry);
        unroll<rows>([&]<size_t r>() {
            const Floats s = V::multiply(d, V::broadcast_float(scale + r));
            total[r] = V::fma(V::convert(sum[r]), s, total[r]);
        });
    }

    // A block of 32.
    [[gnu::always_inline]] inline void simple(const Block &w, size_t entry,
                                              Floats (&total)[rows]) const {
        const BlockSum *sums = x.sums<BlockSum>(entry);
        Words sum[rows];
        unroll<rows>([&]<size_t r>() {
            sum[r] = (Words)Ints{};
            if constexpr (Block::kShift >= 0) {
                sum[r] = V::template shifted<Block::kShift>(&sums[r].negative);
            }
        });
        dot<0, 8>(w, x.integers(entry), sum);
        const BlockScales<V, type> scales(w);
        add(sum, scales.d, entry, total);
        if constexpr (kKind.has_minimum) {
            unroll<rows>([&]<size_t r>() { sum[r] = word(&sums[r].sum); });
            add(sum, scales.m, entry, total);
        }
    }

    // The j-th pair of parts whose sums have 16 bits, at most 16 * 7 * 127.
    template <size_t j>
    [[gnu::always_inline]] static inline void two_parts(const Block &w, const int8_t *q,
                                                        const BlockScales<V, type> &scales,
                                                        Words (&sum)[rows]) {
        constexpr size_t kFirst = j / 2 * 4 + j % 2;
        Words first[rows], second[rows];
        const int bit = part<kFirst>(w, q, first), next_bit = part<kFirst + 2>(w, q, second);
        unroll<rows>([&]<size_t r>() {
            const Ints lower = ((Ints)first[r] >> bit) & 0xFFFF;
            const Ints upper = (Ints)second[r] << (16 - next_bit);
            sum[r] = V::dot_pairs(sum[r], (Words)scales.scale_pair[j], (Words)(lower | upper));
        });
    }

    // A block of 256.
    [[gnu::always_inline]] inline void scaled(const Block &w, size_t entry,
                                              Floats (&total)[rows]) const {
        const BlockScales<V, type> scales(w);
        const BlockSums *sums = x.sums<BlockSums>(entry);
        const int8_t *q = x.integers(entry);
        Words sum[rows], minimum[rows];
        unroll<rows>([&]<size_t r>() { sum[r] = minimum[r] = (Words)Ints{}; });
        if constexpr (kKind.low_bits == 2) {
            unroll<kKind.parts / 2>([&]<size_t j>() { two_parts<j>(w, q, scales, sum); });
        } else {
            unroll<kKind.parts>([&]<size_t j>() {
                Words of_part[rows];
                part<j>(w, q, of_part);
                unroll<rows>([&]<size_t r>() {
                    sum[r] = (Words)((Ints)sum[r] + (Ints)of_part[r] * scales.scale[j]);
                });
            });
        }
        unroll<kKind.parts / 2>([&]<size_t j>() {
            unroll<rows>([&]<size_t r>() {
                const int16_t *of = kKind.parts == 16 ? sums[r].of_16 : sums[r].of_32;
                minimum[r] = V::dot_pairs_broadcast(minimum[r], (Words)scales.pair[j], of + 2 * j);
            });
        });
        if constexpr (Block::kShift >= 0) {
            unroll<rows>([&]<size_t r>() {
                sum[r] = (Words)((Ints)sum[r] - ((Ints)minimum[r] << Block::kShift));
            });
        }
        add(sum, scales.d, entry, total);
        if constexpr (kKind.has_minimum) {
            add(minimum, scales.m, entry, total);
        }
    }

    // Each block meets `groups` times `rows` rows before the next one.
    template <size_t groups>
    [[gnu::flatten]] void multiply(size_t row, const uint8_t *strip, Ahead ahead,
                                   float (&y)[groups * rows][kStripOutputs]) const {
        constexpr size_t kBytes = Block::kShape.bytes;
        Floats total[kParts * groups][rows];
        unroll<kParts * groups * rows>([&]<size_t i>() { total[i / rows][i % rows] = V::zero(); });
        for (size_t block = 0; block < x.blocks; ++block, strip += kBytes) {
            fetch_ahead<kBytes>(strip, ahead);
            const size_t entry = x.entry(row, block);
            unroll<kParts * groups>([&]<size_t i>() {
                const Block w(strip, i / groups);
                if constexpr (kElements == 32) {
                    simple(w, entry + i % groups * rows, total[i]);
                } else {
                    scaled(w, entry + i % groups * rows, total[i]);
                }
            });
        }
        unroll<kParts * groups * rows>([&]<size_t i>() {
            constexpr size_t part = i / rows / groups, r = i / rows % groups * rows + i % rows;
            V::store_floats(y[r] + part * V::kLanes, total[i / rows][i % rows]);
        });
    }
};

// Rows row .. row + groups * rows - 1, of which those below task.rows exist, by the strip of some
// outputs.
template <typename V, Quant type, size_t rows, size_t groups = 1>
void multiply_strip(const QuantizedMatmul &task, const Activations &x, size_t row,
                    const uint8_t *strip, size_t output, bool fetch = false, bool first = true) {
    constexpr size_t kRows = groups * rows;
    float y[kRows][kStripOutputs];
    // The first rows bring the strip into the caches.
    const Ahead ahead = first ? ahead_of(task.rows, fetch) : Ahead{};
    StripTile<V, type, rows>{x}.template multiply<groups>(row, strip, ahead, y);
    const size_t outputs = smaller(kStripOutputs, task.outputs - output);
    for (size_t r = 0; r < smaller(kRows, task.rows - row); ++r) {
        float *to = task.y + (row + r) * task.y_stride + output;
        __builtin_memcpy(to, y[r], outputs * sizeof(float));
    }
}

// The whole product, for one row to kFewRows.
template <typename V, Quant type>
void multiply_few(const QuantizedMatmul &task, const Activations &x, bool fetch) {
    const uint8_t *strip = task.w;
    for (size_t output = 0; output < task.outputs; output += kStripOutputs) {
        with_rows<V, kFewRows>(task.rows, [&]<size_t rows>() {
            multiply_strip<V, type, rows>(task, x, 0, strip, output, fetch);
        });
        strip += strip_bytes(type, task.depth);
    }
}

// Rows begin .. end - 1 of those that are filled up, by all strips.
template <typename V, Quant type>
void multiply_rows(const QuantizedMatmul &task, const Activations &x, size_t begin, size_t end) {
    // With VNNI eight rows multiply a block of Q8_0 in less time than memory takes to give it. So
    // all 16 of a group meet it before the next one: 1.05 to 1.08 times as fast with 16 to 64 rows
    // on Zen 4. Other types do not gain by it.
    constexpr bool kTwoTimes = type == Quant::q8_0 && V::kUnsigned;
    const uint8_t *strip = task.w;
    for (size_t output = 0; output < task.outputs; output += kStripOutputs) {
        size_t row = begin;
        if constexpr (kTwoTimes) {
            for (; row + V::kDotRows < task.rows && row + kGroupRows <= end; row += kGroupRows) {
                multiply_strip<V, type, V::kDotRows, 2>(task, x, row, strip, output, false,
                                                        row == begin);
            }
        }
        for (; row < task.rows && row + V::kDotRows <= end; row += V::kDotRows) {
            multiply_strip<V, type, V::kDotRows>(task, x, row, strip, output, false, row == begin);
        }
        if (V::kDotRows > 4 && row < task.rows && row < end) {
            multiply_strip<V, type, 4>(task, x, row, strip, output, false, row == begin);
        }
        strip += strip_bytes(type, task.depth);
    }
}

// Returns how many rows meet all strips before the next: as many as stay in the second level of
// caches, and whole groups. Reading the weights again costs less than reading x from further away
// for each strip: 512 rows of 5632 elements are 1.01 to 1.05 times as fast on Zen 4.
inline size_t rows_together(const Activations &x) {
    constexpr size_t kBytes = size_t{256} * 1024;
    const size_t groups = kBytes / (x.bytes() / x.rows * kGroupRows);
    return (groups > 1 ? groups : 1) * kGroupRows;
}

template <typename V, Quant type> void multiply_quantized(const QuantizedMatmul &task) {
    static_assert(V::kDotRows == 4 || V::kDotRows == 8);
    const Activations x(task.packed, task.rows, task.depth, quant_block(type).elements);
    if (task.rows <= kFewRows && kPaced<type> && read_ahead() == ReadAhead::alone) {
        static thread_local Pace paces[kFewRows];
        paces[task.rows - 1].run(strips_bytes(type, task.outputs, task.depth),
                                 [&](bool fetch) { multiply_few<V, type>(task, x, fetch); });
        return;
    }
    if (task.rows <= kFewRows) {
        multiply_few<V, type>(task, x, false);
        return;
    }
    const size_t together = rows_together(x);
    for (size_t begin = 0; begin < task.rows; begin += together) {
        multiply_rows<V, type>(task, x, begin, smaller(begin + together, x.rows));
    }
}

// Compiled in the files product_*.cpp: a type of blocks of 256 takes a compiler many seconds.
extern template void multiply_quantized<Integers, Quant::q8_0>(const QuantizedMatmul &);
extern template void multiply_quantized<Integers, Quant::q4_0>(const QuantizedMatmul &);
extern template void multiply_quantized<Integers, Quant::q4_1>(const QuantizedMatmul &);
extern template void multiply_quantized<Integers, Quant::q5_0>(const QuantizedMatmul &);
extern template void multiply_quantized<Integers, Quant::q5_1>(const QuantizedMatmul &);
extern template void multiply_quantized<Integers, Quant::q4_k>(const QuantizedMatmul &);
extern template void multiply_quantized<Integers, Quant::q5_k>(const QuantizedMatmul &);
extern template void multiply_quantized<Integers, Quant::q6_k>(const QuantizedMatmul &);
extern template void multiply_quantized<Integers, Quant::q2_k>(const QuantizedMatmul &);
extern template void multiply_quantized<Integers, Quant::q3_k>(const QuantizedMatmul &);
extern template void multiply_quantized<Integers, Quant::iq4_nl>(const QuantizedMatmul &);
extern template void multiply_quantized<Integers, Quant::iq4_xs>(const QuantizedMatmul &);
extern template void multiply_quantized<Integers, Quant::mxfp4>(const QuantizedMatmul &);

} // namespace stasis::kernels::STASIS_TABLE
