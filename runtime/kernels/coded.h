// A matrix of bf16 weights in 12 bits each, without loss, so that products with few rows read a
// quarter less. Exponents of trained weights lie close together: four bits say which of 15
// consecutive ones a weight has. Zhang et al. (DFloat11, 2025, arXiv 2504.11651) code them by
// Huffman; here all codes have one length, so that vectors take them apart. Knows no files.
//
// As in strips.h, 16 outputs are a strip. It holds the blocks of the rule (C1), the last filled up
// with +0, in the order in which VDPBF16PS takes them: step i of the even chain, then of the odd
// one, as 16 words of the outputs side by side. The high half of a word is term 4 i of the block,
// of the odd chain 4 i + 1; the low half is the term two further. Four such vectors are a group:
//     64 bytes, of each half of a word the codes of the four vectors, the first in the lowest bits;
//     128 bytes, of each half of a word its sign and fraction. In 16 bytes of the first 64 are
//     eight of the first vector, then eight of the second; the last 64 are of the other two.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis::kernels {

inline constexpr size_t kCodedOutputs = 16;
inline constexpr size_t kCodedBlockTerms = 32;
inline constexpr size_t kCodedBlockWeights = kCodedOutputs * kCodedBlockTerms;
inline constexpr size_t kCodedGroups = 4; // in a block
inline constexpr size_t kCodedGroupBytes = 192;
inline constexpr size_t kCodedBlockBytes = kCodedGroups * kCodedGroupBytes;
inline constexpr unsigned kCodes = 15; // of exponents; the code kCodes stands for exponent 0

// A weight whose exponent has no code. Its code is kCodes.
struct Escape {
    uint32_t place; // in the strip: block * kCodedBlockWeights + vector * 32 + half of a word
    uint16_t value; // bf16
};

struct CodedStrip {
    const uint8_t *blocks = nullptr; // coded_strip_bytes(depth)
    const Escape *escapes = nullptr; // [escape_count], ascending
    uint32_t escape_count = 0;
    uint16_t exponent = 1; // of code 0
};

// Returns the bytes of the blocks of a strip.
constexpr size_t coded_strip_bytes(size_t depth) {
    return (depth + kCodedBlockTerms - 1) / kCodedBlockTerms * kCodedBlockBytes;
}

// Returns the bytes of the blocks of a matrix.
constexpr size_t coded_bytes(size_t outputs, size_t depth) {
    return (outputs + kCodedOutputs - 1) / kCodedOutputs * coded_strip_bytes(depth);
}

// Codes rows of a strip, one after the other, filled up with +0.
struct CodeStrip {
    const uint16_t *rows; // [outputs][depth] bf16
    size_t outputs;       // 1 to 16
    size_t depth;
    uint8_t *blocks; // coded_strip_bytes(depth)
    Escape *escapes; // [escapes_max]
    size_t escapes_max;
};

struct Coded {
    uint16_t exponent;   // of code 0
    size_t escape_count; // also of those that had no room
};

} // namespace stasis::kernels
