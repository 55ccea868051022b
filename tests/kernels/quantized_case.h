// Products of integer weights (C8) at their edges, for tables and devices alike: integers and
// scales at their extremes, activations around the least that count.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

#include "tests/kernels/inputs.h"
#include "tests/kernels/naive_quantized.h"

namespace quantized_case {

using stasis::kernels::Quant;

// Those that devices multiply with, and all.
inline constexpr Quant kDeviceTypes[] = {Quant::q8_0, Quant::q4_0, Quant::q4_1, Quant::q5_0,
                                         Quant::q5_1, Quant::q4_k, Quant::q5_k, Quant::q6_k};
inline constexpr Quant kTypes[] = {
    Quant::q8_0, Quant::q4_0, Quant::q4_1, Quant::q5_0,   Quant::q5_1,   Quant::q4_k, Quant::q5_k,
    Quant::q6_k, Quant::q2_k, Quant::q3_k, Quant::iq4_nl, Quant::iq4_xs, Quant::mxfp4};
inline constexpr float kUntouched = 7.0F;

struct Product {
    Quant type;
    size_t rows, outputs, blocks;
    std::vector<uint16_t> x;
    std::vector<uint8_t> w;

    size_t elements() const { return stasis::kernels::quant_block(type).elements; }
    size_t depth() const { return blocks * elements(); }
    size_t stride() const { return stasis::kernels::quant_row_bytes(type, depth()); }
    size_t y_stride() const { return outputs + 1; }
    std::vector<float> untouched() const {
        return std::vector<float>((rows - 1) * y_stride() + outputs, kUntouched);
    }
    std::vector<uint8_t> strips() const {
        return in_strips(type, w.data(), stride(), outputs, depth());
    }
};

// By the naive restatement; rows are `y_stride` apart.
inline std::vector<float> expected(const Product &p, size_t y_stride) {
    std::vector<float> y((p.rows - 1) * y_stride + p.outputs, kUntouched);
    naive::matmul({p.type, p.x.data(), p.depth(), p.w.data(), p.stride(), y.data(), y_stride,
                   p.rows, p.outputs, p.depth()});
    return y;
}

// The one byte of MXFP4 becomes f16's power of two.
inline void set_scales(Product &p, size_t block, uint16_t f16) {
    uint8_t *bytes = p.w.data() + block * stasis::kernels::quant_block(p.type).bytes;
    if (p.type == Quant::mxfp4) {
        const int exponent = f16 >> 10 & 31;
        bytes[0] = static_cast<uint8_t>(exponent == 0 ? f16 & 3 : exponent - 15 + 128);
        return;
    }
    for (const size_t offset : stasis::kernels::quant_scales(p.type)) {
        bytes[offset] = static_cast<uint8_t>(f16);
        bytes[offset + 1] = static_cast<uint8_t>(f16 >> 8);
    }
}

// Weights of any bytes, with scales of ordinary size.
inline Product random_product(Numbers &numbers, Quant type, size_t rows, size_t outputs,
                              size_t blocks, Kind kind = Kind::plain) {
    Product p{type, rows, outputs, blocks, {}, {}};
    p.x = numbers.bf16(rows * p.depth(), kind);
    p.w.resize(outputs * p.stride());
    for (uint8_t &byte : p.w) {
        byte = static_cast<uint8_t>(numbers.bits());
    }
    for (size_t block = 0; block < outputs * blocks; ++block) {
        set_scales(p, block, static_cast<uint16_t>(0x2000 | (numbers.bits() & 0x9FFFU)));
    }
    return p;
}

// Every byte of the weights `fill`: integers and scales at their extremes.
inline Product extreme_product(Numbers &numbers, Quant type, uint8_t fill, size_t rows) {
    Product p = random_product(numbers, type, rows, 17, 2);
    for (size_t i = 0; i < p.x.size(); ++i) { // all +a, all -a, both
        const bool minus = i % p.depth() % 3 == 0 || i / p.depth() % 3 == 1;
        p.x[i] = minus && i / p.depth() % 3 != 0 ? 0xBFB3 : 0x3FB3;
    }
    std::fill(p.w.begin(), p.w.end(), fill);
    const size_t bytes = stasis::kernels::quant_block(type).bytes;
    for (size_t block = 0; block < p.outputs * p.blocks; ++block) {
        set_scales(p, block, block % 2 == 0 ? 0x3C01 : 0xB7FF);
        for (size_t j = 0; type == Quant::q6_k && j < 16; ++j) { // sc, any of both
            p.w[block * bytes + 192 + j] = block % 3 == 0 ? 0x80 : 0x7F;
        }
    }
    return p;
}
inline constexpr uint8_t kFills[] = {0x00, 0xFF, 0x80, 0x7F};

// The threshold of C8 is 2^-100; a product of scales may be flushed (C2).
inline Product tiny_product(Numbers &numbers, Quant type, size_t rows) {
    constexpr uint16_t kLargest[] = {0x0000, 0x8000, 0x0001, 0x807F, 0x0080,
                                     0x0D7F, 0x0D80, 0x0D81, 0x1000, 0x7F7F};
    static_assert(0x0D80 >> 7 == 127 - 100);
    Product p = random_product(numbers, type, rows, 5, std::size(kLargest));
    const size_t elements = p.elements();
    for (size_t i = 0; i < p.x.size(); ++i) {
        const uint16_t largest = kLargest[(i / elements + i / p.depth()) % p.blocks];
        const uint64_t below = (largest & 0x7FFFU) + uint64_t{1};
        p.x[i] = i % elements == 3
                     ? largest
                     : static_cast<uint16_t>(numbers.below(below) | (numbers.bits() & 0x8000U));
    }
    constexpr uint16_t kScales[] = {0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF};
    for (size_t block = 0; block < p.outputs * p.blocks; ++block) {
        set_scales(p, block, kScales[numbers.below(std::size(kScales))]);
    }
    return p;
}

} // namespace quantized_case
