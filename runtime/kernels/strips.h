// A matrix of integer weights (C8) in the order in which products read it: strips of 16 outputs,
// whose blocks are consecutive. So memory is read from front to back, and lanes are outputs without
// a transpose. Knows no files.
//
// A block of a strip has as many bytes as the 16 published blocks it is made of. First come their
// 4-byte words, a word of the 16 outputs side by side. If a block is not a whole number of words,
// the rest of each follows, a scale: an f16, or the exponent of MXFP4. Words lie in the order in
// which a product reads them (strip_word), so that a processor reads ahead by itself: scales first,
// then low bits, each word beside that of the upper bits that it is read with first. The fifth bits
// of Q5_0 and Q5_1 are reordered: bit 8 k + i is that of element 4 i + k. Outputs past the matrix
// are blocks of zeros.
#pragma once

#include "runtime/kernels/quantized.h"

namespace stasis::kernels {

inline constexpr size_t kStripOutputs = 16;

struct StripBlock {
    size_t words; // 4-byte words of a published block
    size_t first; // offset of the first word
    size_t rest;  // offset of the remaining scale, if there is one
    size_t bytes; // bytes of a block of the strip

    // Returns the bytes of the remaining scale: 2, 1, or 0 if there is none.
    [[gnu::always_inline]] constexpr size_t rest_bytes() const {
        return bytes / kStripOutputs - words * 4;
    }
};

[[gnu::always_inline]] constexpr StripBlock strip_block(Quant type) {
    const size_t bytes = quant_block(type).bytes, rest = bytes % 4;
    // The scale is the last field; else it is the first.
    const bool at_end = type == Quant::q6_k || type == Quant::q3_k;
    return {bytes / 4, at_end ? 0 : rest, at_end ? bytes - rest : 0, bytes * kStripOutputs};
}

// Returns where word `i` of a published block, counted without the remaining scale, is in a block
// of a strip. The comments give the published order.
[[gnu::always_inline]] constexpr size_t strip_word(Quant type, size_t i) {
    // Eight words of upper bits from `upper` on and as many of lower bits from `lower` on, in turn.
    const auto in_turn = [i](size_t upper, size_t lower, size_t to) {
        return i >= upper && i < upper + 8 ? to + 2 * (i - upper) + 1 : to + 2 * (i - lower);
    };
    switch (type) {
    case Quant::q2_k: // scales, integers, d and m
        return (i + 1) % 21;
    case Quant::q3_k: // upper bits, integers, scales
        return i >= 24 ? i - 24 : i < 16 ? in_turn(0, 8, 3) : i + 3;
    case Quant::q5_k: // d and m, scales, upper bits, integers
        return i >= 4 && i < 20 ? in_turn(4, 12, 4) : i;
    case Quant::q6_k: { // integers and upper bits of two halves, scales
        const size_t half = i < 32 ? i / 16 : (i - 32) / 8, to = 4 + 24 * half;
        return i >= 48                 ? i - 48
               : i < 32 && i % 16 >= 8 ? to + 8 + i % 16
                                       : in_turn(32 + 8 * half, 16 * half, to);
    }
    default:
        return i;
    }
}

// Returns the bytes of the strip of 16 rows of `depth` weights, a multiple of the block's elements.
[[gnu::always_inline]] constexpr size_t strip_bytes(Quant type, size_t depth) {
    return depth / quant_block(type).elements * strip_block(type).bytes;
}

// Returns the bytes of a matrix in strips.
[[gnu::always_inline]] constexpr size_t strips_bytes(Quant type, size_t outputs, size_t depth) {
    return (outputs + kStripOutputs - 1) / kStripOutputs * strip_bytes(type, depth);
}

// Fills one strip from `outputs` rows (1 to 16) of published blocks, `row_bytes` apart.
void make_strip(Quant type, const uint8_t *rows, size_t row_bytes, size_t outputs, size_t depth,
                uint8_t *strip);

} // namespace stasis::kernels
