// One block of integer weights, unpacked to the quantities that C8 names. Knows no products.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/kernels/strips.h"

namespace stasis::kernels::STASIS_REFERENCE {

struct Block {
    float d, m; // m with its sign
    bool has_minimum;
    size_t parts; // sub-blocks
    size_t part_elements;
    int16_t scale[16];   // sc
    int16_t minimum[16]; // mn
    int8_t n[256];
};

// Unpacks a block as published.
Block read_block(Quant type, const uint8_t *bytes);
// Unpacks the block of one output from a strip's block.
Block read_strip_block(Quant type, const uint8_t *bytes, size_t output);

} // namespace stasis::kernels::STASIS_REFERENCE
