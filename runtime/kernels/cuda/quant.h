// The common parts of the kernels of integer weights (C8): the order of quantized activations, and
// the blocks of a strip (strips.h) word by word. Integers are exact, so their sums may have any
// order.
//
// A product's unit of work is a part of a block, for 4 outputs: two sequences of its elements,
// called run a and run b in this folder, that are in the same words of the block or in words at a
// fixed distance. A block of 32 is one part, whose runs are its halves; a block of 256 has 4 parts
// with two runs of 32. A step of a unit takes 4 words, 16 elements, of either run.
#pragma once

#include "runtime/kernels/cuda/functions.h"

namespace stasis::kernels::device {

#ifdef __CUDACC__
// Returns c + the sum of 4 products of bytes; the bytes of x are signed.
__device__ inline int dot_signed(uint32_t w, uint32_t x, int c) {
    return __dp4a(static_cast<int>(w), static_cast<int>(x), c);
}
__device__ inline int dot_unsigned(uint32_t w, uint32_t x, int c) {
    int sum;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(sum) : "r"(w), "r"(x), "r"(c));
    return sum;
}
#else
using host_grid::dot_signed;
using host_grid::dot_unsigned;
#endif

// A bundle is 8 consecutive groups of activations. Their pieces of 16 integers are interleaved, so
// that 8 units that each read a group of their own read 128 consecutive bytes.
inline constexpr unsigned kBundle = 8;

// Quantized rows: integers, then scales, then sums.
struct Quantized {
    size_t rows, groups, elements; // groups of a row, elements of a group
    uint4 *integers;               // [row][bundle][piece of a group][group of the bundle]
    float *scales;                 // [row][group]
    uint32_t *sums; // [row][32 elements]: the first 16 integers and the others, two int16

    __host__ __device__ Quantized(void *where, size_t rows_, size_t depth, size_t elements_)
        : rows(rows_), groups(depth / elements_), elements(elements_),
          integers(static_cast<uint4 *>(where)),
          scales(where == nullptr ? nullptr
                                  : reinterpret_cast<float *>(integers + rows * row_pieces())),
          sums(where == nullptr ? nullptr : reinterpret_cast<uint32_t *>(scales + rows * groups)) {}

    __host__ __device__ size_t row_pieces() const {
        return (groups + kBundle - 1) / kBundle * kBundle * (elements / 16);
    }
    __host__ __device__ size_t piece(size_t row, size_t group, size_t at) const {
        const size_t bundle = group / kBundle * kBundle * (elements / 16);
        return row * row_pieces() + bundle + at * kBundle + group % kBundle;
    }
    __host__ __device__ size_t row_sums() const { return groups * (elements / 32); }
    size_t bytes() const {
        return rows * (row_pieces() * 16 + groups * sizeof(float) + row_sums() * sizeof(uint32_t));
    }
};

__device__ inline int first_sum(uint32_t pair) {
    return static_cast<int16_t>(pair & 0xFFFFU);
}
__device__ inline int second_sum(uint32_t pair) {
    return static_cast<int32_t>(pair) >> 16;
}

// Converts f16 to f32. Every f16 is a normal f32 or zero; values that are not finite were refused
// when the model was opened.
__device__ inline float f16_to_f32(uint32_t bits) {
    const uint32_t magnitude = bits & 0x7FFFU;
    const float value = magnitude < 0x0400U
                            ? mul(static_cast<float>(magnitude), 0x1p-24F)
                            : __builtin_bit_cast(float, (magnitude << 13) + (112U << 23));
    return (bits & 0x8000U) != 0 ? -value : value;
}

// The properties of a type of blocks.
template <Quant kType> struct QuantType {
    static constexpr StripBlock kShape = strip_block(kType);
    static constexpr unsigned kElements = static_cast<unsigned>(quant_block(kType).elements);
    static constexpr bool kHasHalf = kShape.rest_bytes() != 0; // d is stored separately
    static constexpr bool kSigned = kType == Quant::q8_0;      // n is an int8
    static constexpr bool kHasMinimum = kType == Quant::q4_1 || kType == Quant::q5_1 ||
                                        kType == Quant::q4_k || kType == Quant::q5_k;
    static constexpr bool kNibbles = kType == Quant::q4_0 || kType == Quant::q4_1 ||
                                     kType == Quant::q4_k; // four bits and no more
    // n = u - kOffset, with u as stored.
    static constexpr int kOffset = kType == Quant::q4_0   ? 8
                                   : kType == Quant::q5_0 ? 16
                                   : kType == Quant::q6_k ? 32
                                                          : 0;
    static constexpr bool kSixBits = kType == Quant::q4_k || kType == Quant::q5_k; // of its scales
    static constexpr unsigned kParts = kElements / 64 == 0 ? 1 : kElements / 64;
    static constexpr unsigned kSteps = kElements == 32 ? 1 : 2;
    // Words of run b hold 16 times u, which saves a shift for each word and costs one for the sum.
    static constexpr unsigned kShift = kNibbles ? 4 : 0;

    // Returns the word of element 4 j of run a of a part; run b's is the same or second_word. Both
    // count words as a strip has them (strip_word, strips.h).
    __device__ static unsigned word(unsigned part, unsigned j) {
        if constexpr (kType == Quant::q6_k) {
            const unsigned half = 4 + part / 2 * 24;
            return part % 2 == 0 ? half + 2 * j : half + 16 + j;
        } else if constexpr (kType == Quant::q5_k) {
            return part == 0 ? 4 + 2 * j : 12 + part * 8 + j;
        } else {
            constexpr unsigned kFirst = kType == Quant::q4_1 || kType == Quant::q5_0 ? 1
                                        : kType == Quant::q5_1                       ? 2
                                        : kType == Quant::q4_k                       ? 4
                                                                                     : 0;
            return kFirst + part * 8 + j;
        }
    }
    // Returns the word with the rest of u: upper bits, or run b. 0: none needed.
    __device__ static unsigned second_word(unsigned part, unsigned j) {
        return kType == Quant::q8_0   ? 4 + j
               : kType == Quant::q5_1 ? 1
               : kType == Quant::q5_k ? 5 + 2 * j
               : kType == Quant::q6_k ? 5 + part / 2 * 24 + 2 * j
                                      : 0;
    }
    // Returns the first element of either run.
    __device__ static unsigned first_element(unsigned part, bool b) {
        if constexpr (kType == Quant::q6_k) {
            return part / 2 * 128 + part % 2 * 32 + (b ? 64 : 0);
        }
        return kElements == 32 ? (b ? 16 : 0) : part * 64 + (b ? 32 : 0);
    }

    // Unpacks four u of either run, of one output, from both words.
    __device__ static void unpack(uint32_t first, uint32_t second, unsigned part, unsigned j,
                                  uint32_t &a, uint32_t &b) {
        if constexpr (kType == Quant::q8_0) {
            a = first, b = second;
            return;
        }
        a = first & 0x0F0F0F0FU;
        b = kNibbles ? first & 0xF0F0F0F0U : first >> 4 & 0x0F0F0F0FU;
        if constexpr (kType == Quant::q5_0 || kType == Quant::q5_1) { // bit j, bit 4 + j
            a |= second << (4 - j) & 0x10101010U;
            b |= second >> j & 0x10101010U;
        } else if constexpr (kType == Quant::q5_k) { // bits 2 part, 2 part + 1
            const uint32_t bits = second >> 2 * part;
            a |= bits << 4 & 0x10101010U;
            b |= bits << 3 & 0x10101010U;
        } else if constexpr (kType == Quant::q6_k) { // two bits of each 32 elements of the half
            const uint32_t bits = second >> part % 2 * 2;
            a |= bits << 4 & 0x30303030U;
            b |= bits & 0x30303030U;
        }
    }

    // Unpacks words 1 to 3 of Q4_K and Q5_K: sc and mn of the part's runs in the low two bytes.
    __device__ static void six_bits(uint32_t w1, uint32_t w2, uint32_t w3, unsigned part,
                                    uint32_t &sc, uint32_t &mn) {
        sc = part < 2 ? w1 & 0x3F3F3F3FU : (w3 & 0x0F0F0F0FU) | (w1 >> 2 & 0x30303030U);
        mn = part < 2 ? w2 & 0x3F3F3F3FU : (w3 >> 4 & 0x0F0F0F0FU) | (w2 >> 2 & 0x30303030U);
        sc >>= part % 2 * 16;
        mn >>= part % 2 * 16;
    }
    // Returns the word of Q6_K that holds sc of a run of a part, a byte for each step from
    // scales_bit on.
    __device__ static unsigned scales_word(unsigned part, bool b) {
        return part / 2 * 2 + (b ? 1 : 0);
    }
    __device__ static unsigned scales_bit(unsigned part) { return part % 2 * 16; }
};

__device__ inline int signed_byte(uint32_t word, unsigned bit) {
    return static_cast<int8_t>(word >> bit & 0xFFU);
}

// Calls `call`.operator()<type>() for a type that is known at run time.
template <typename Call> __device__ inline void with_type(Quant type, const Call &call) {
    switch (type) {
    case Quant::q8_0:
        return call.template operator()<Quant::q8_0>();
    case Quant::q4_0:
        return call.template operator()<Quant::q4_0>();
    case Quant::q4_1:
        return call.template operator()<Quant::q4_1>();
    case Quant::q5_0:
        return call.template operator()<Quant::q5_0>();
    case Quant::q5_1:
        return call.template operator()<Quant::q5_1>();
    case Quant::q4_k:
        return call.template operator()<Quant::q4_k>();
    case Quant::q5_k:
        return call.template operator()<Quant::q5_k>();
    case Quant::q6_k:
        return call.template operator()<Quant::q6_k>();
    case Quant::q2_k: // device_multiplies says no
    case Quant::q3_k:
    case Quant::iq4_nl:
    case Quant::iq4_xs:
    case Quant::mxfp4:
        return;
    }
}

// Computes products with matrices in strips (quant_product.cu); the gated one writes y directly.
void integer_products(DeviceQueue *queue, const DeviceProduct &task);
void integer_products(DeviceQueue *queue, const DeviceGatedProduct &task);
// Looks up rows of embeddings in strips (quant_rows.cu).
void embed_strips(DeviceQueue *queue, const DeviceEmbed &task);

} // namespace stasis::kernels::device
