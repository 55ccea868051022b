// Weights in blocks of small integers (C8): the types and the sizes of their blocks. Always
// inlined, as in bf16.h, so that no copy compiled for wider instructions is linked. Knows no files;
// GGUF's names and numbers of these types are in runtime/model/gguf/types.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis::kernels {

enum class Quant : uint8_t {
    q8_0,
    q4_0,
    q4_1,
    q5_0,
    q5_1,
    q4_k,
    q5_k,
    q6_k,
    q2_k,
    q3_k,
    iq4_nl,
    iq4_xs,
    mxfp4
};

// The integers that four bits stand for: of IQ4_NL and IQ4_XS, and of MXFP4, whose values (E2M1 of
// the OCP Microscaling Formats) are half of these.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kMxfp4Values[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

struct QuantBlock {
    size_t elements; // weights in a block, and activations that share a scale
    size_t bytes;
};

[[gnu::always_inline]] constexpr QuantBlock quant_block(Quant type) {
    switch (type) {
    case Quant::q8_0:
        return {32, 34};
    case Quant::q4_0:
        return {32, 18};
    case Quant::q4_1:
        return {32, 20};
    case Quant::q5_0:
        return {32, 22};
    case Quant::q5_1:
        return {32, 24};
    case Quant::q4_k:
        return {256, 144};
    case Quant::q5_k:
        return {256, 176};
    case Quant::q6_k:
        return {256, 210};
    case Quant::q2_k:
        return {256, 84};
    case Quant::q3_k:
        return {256, 110};
    case Quant::iq4_nl:
        return {32, 18};
    case Quant::iq4_xs:
        return {256, 136};
    case Quant::mxfp4:
        return {32, 17};
    }
    return {};
}

// Offsets of a block's scales; the same offset twice if there is only one. They are f16, but for
// the one byte of MXFP4, an exponent (E8M0), of which 255 is no number.
struct QuantScales {
    size_t offset[2];
    [[gnu::always_inline]] constexpr const size_t *begin() const { return offset; }
    [[gnu::always_inline]] constexpr const size_t *end() const { return offset + 2; }
};

[[gnu::always_inline]] constexpr QuantScales quant_scales(Quant type) {
    switch (type) {
    case Quant::q4_1:
    case Quant::q5_1:
    case Quant::q4_k:
    case Quant::q5_k:
        return {{0, 2}};
    case Quant::q6_k:
        return {{208, 208}};
    case Quant::q2_k:
        return {{80, 82}};
    case Quant::q3_k:
        return {{108, 108}};
    default:
        return {{0, 0}};
    }
}

// Returns the bytes of a row of `depth` weights, a multiple of the block's elements.
[[gnu::always_inline]] constexpr size_t quant_row_bytes(Quant type, size_t depth) {
    return depth / quant_block(type).elements * quant_block(type).bytes;
}

} // namespace stasis::kernels
