// A matrix of bf16 weights in 12 bits each, without loss, so that products with few rows read a
// quarter less. Exponents of trained weights lie close together. So the high byte of a weight, its
// sign and all bits of its exponent but the last, is one of 16 of its strip: eight and those with
// the other sign. Four bits say which; the low byte is stored as it is. Zhang et al. (DFloat11,
// 2025, arXiv 2504.11651) code exponents by Huffman; here all codes have one length, so that one
// shuffle of bytes looks up 64 of them. Knows no files.
//
// As in strips.h, 16 outputs are a strip. A table with 16 lanes has one part of it, one with eight
// two parts of eight outputs, one after the other. A part holds the blocks of the rule (C1) as 16
// vectors of halves, in the table's order of terms:
//     with tiles vector i is of output i, terms ascending;
//     else a vector has a word of two halves for each output:
//     with VDPBF16PS vector 2 i is of step i of the even chain, high term 4 i of the block and low
//     the term two further, vector 2 i + 1 of the odd chain, from 4 i + 1 on;
//     with neither, the term 2 i is low and 2 i + 1 high in vector i.
// Four vectors are a group of three times a vector's bytes (64 or 32):
//     of each byte in the next vector the code in the low bits, in the one after it in the high;
//     the low bytes of the first two vectors' halves, in 16 bytes eight of the first and eight of
//     the second, as VPUNPCKLBW and VPUNPCKHBW take them;
//     those of the other two.
// Terms beyond the depth are finite and not negative; outputs beyond the last are whatever.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis::kernels {

inline constexpr size_t kCodedOutputs = 16;
inline constexpr size_t kCodedBlockTerms = 32;
inline constexpr size_t kCodedBlockWeights = kCodedOutputs * kCodedBlockTerms;
inline constexpr size_t kCodedBlockBytes = kCodedBlockWeights / 2 * 3;
inline constexpr size_t kCodes = 16;

// A weight whose high byte has no code.
struct Escape {
    uint32_t place; // in the strip: the halves of vectors before it
    uint16_t value; // bf16
};

struct CodedStrip {
    const uint8_t *blocks = nullptr; // coded_strip_bytes(depth)
    const Escape *escapes = nullptr; // [escape_count], ascending
    uint32_t escape_count = 0;
    uint8_t high[kCodes] = {}; // the byte of each code
};

// Returns the bytes of the blocks of a strip.
constexpr size_t coded_strip_bytes(size_t depth) {
    return (depth + kCodedBlockTerms - 1) / kCodedBlockTerms * kCodedBlockBytes;
}

// Returns the bytes of the blocks of a matrix.
constexpr size_t coded_bytes(size_t outputs, size_t depth) {
    return (outputs + kCodedOutputs - 1) / kCodedOutputs * coded_strip_bytes(depth);
}

// Codes rows of a strip, one after the other.
struct CodeStrip {
    const uint16_t *rows; // [outputs][depth] bf16
    size_t outputs;       // 1 to 16
    size_t depth;
    uint8_t *blocks; // coded_strip_bytes(depth)
    Escape *escapes; // [escapes_max]
    size_t escapes_max;
};

struct Coded {
    uint8_t high[kCodes];
    size_t escape_count; // also of those that had no room
};

} // namespace stasis::kernels
