// Weights in blocks of small integers (C8): the types and the sizes of their blocks. Always
// inlined, as in bf16.h, so that no copy compiled for wider instructions is linked. Knows no files;
// GGUF's names and numbers of these types are in runtime/model/gguf/types.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis::kernels {

enum class Quant : uint8_t { q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k };

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
    }
    return {};
}

// Offsets of a block's scales, f16; the same offset twice if there is only one.
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
    default:
        return {{0, 0}};
    }
}

// Returns the bytes of a row of `depth` weights, a multiple of the block's elements.
[[gnu::always_inline]] constexpr size_t quant_row_bytes(Quant type, size_t depth) {
    return depth / quant_block(type).elements * quant_block(type).bytes;
}

} // namespace stasis::kernels
