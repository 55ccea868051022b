// A matrix of integer weights (C8) in the order in which products read it: strips of 16 outputs,
// whose blocks are consecutive. So memory is read from front to back, and lanes are outputs without
// a transpose. Knows no files.
//
// A block of a strip has as many bytes as the 16 published blocks it is made of. First come their
// 4-byte words, word w of the 16 outputs side by side. If a block is not a whole number of words,
// the rest of each follows, a scale: an f16, or the exponent of MXFP4. Words keep the order of the
// published block, without that scale; only the fifth bits of Q5_0 and Q5_1 are reordered: bit 8 k
// + i is that of element 4 i + k. Outputs past the matrix are blocks of zeros.
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
