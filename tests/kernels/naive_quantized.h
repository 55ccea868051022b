// C8 once more, written from NUMERICS.md with soft_float.h: blocks by the positions of their bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/kernels/quantized.h"

namespace naive {

using stasis::kernels::Quant;

// Of element i of a block: n, and sc and mn of its sub-block.
struct Weight {
    int n, scale, minimum;
};
Weight weight(Quant type, const uint8_t *block, size_t i);
// d, and m with its sign; `has` says whether the type has an m.
struct Scales {
    float d, m;
    bool has;
};
Scales scales(Quant type, const uint8_t *block);

// Integers and scale of a group of n bf16 values.
void quantize(const uint16_t *x, size_t n, std::vector<int> &q, float &scale);

// y [rows][outputs] = x [rows][depth] bf16 times w [outputs], rows of blocks `w_stride` bytes
// apart.
struct QuantizedProduct {
    Quant type;
    const uint16_t *x;
    size_t x_stride;
    const uint8_t *w;
    size_t w_stride;
    float *y;
    size_t y_stride, rows, outputs, depth;
};
void matmul(const QuantizedProduct &task);
void embed(Quant type, const uint8_t *row, float scale, size_t n, float *y);

} // namespace naive
