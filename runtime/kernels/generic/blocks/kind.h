// What kernels need to know of a type of integer weights (C8) at compile time: how its integers are
// stored, as u, which scales they come with, and in which words of a strip's block they lie.
#pragma once

#include "runtime/kernels/strips.h"

namespace stasis::kernels::STASIS_TABLE {

struct Kind {
    int shift;     // n = u - 2^shift; below 0: n = u
    bool has_sign; // u is an int8, else at most 63
    bool has_minimum;
    size_t parts;                   // sub-blocks with integer scales; 0: none
    int low_bits = 4;               // of u, that a word has for each of its integers
    const int8_t *values = nullptr; // [16] n of each four bits; null: the bits are u themselves
};

constexpr Kind kind_of(Quant type) {
    switch (type) {
    case Quant::q8_0:
        return {-1, true, false, 0, 8};
    case Quant::q4_0:
        return {3, false, false, 0};
    case Quant::q4_1:
        return {-1, false, true, 0};
    case Quant::q5_0:
        return {4, false, false, 0};
    case Quant::q5_1:
        return {-1, false, true, 0};
    case Quant::q4_k:
        return {-1, false, true, 8};
    case Quant::q5_k:
        return {-1, false, true, 8};
    case Quant::q6_k:
        return {5, false, false, 16};
    case Quant::q2_k:
        return {-1, false, true, 16, 2};
    case Quant::q3_k:
        return {2, false, false, 16, 2};
    case Quant::iq4_nl:
        return {-1, true, false, 0, 4, kIq4Values};
    case Quant::iq4_xs:
        return {-1, true, false, 8, 4, kIq4Values};
    case Quant::mxfp4:
        return {4, false, false, 0, 4, kMxfp4Values};
    }
    return {};
}

// Where a word of four integers u of an output is put together from.
struct Place {
    int word, bit;           // of a block, and where their low bits begin in each byte
    int high_word, high_bit; // the same for their upper bits
    int high_mask;           // of a byte, which bits of u are the upper ones; 0: there are none
};

// Word i holds elements 4 i to 4 i + 3 of the block.
constexpr Place place_of(Quant type, int i) {
    const int j = i % 8, part = i / 8; // word of a run of 32 elements, and which run
    switch (type) {
    case Quant::q8_0:
        return {i, 0, 0, 0, 0};
    case Quant::q4_0:
    case Quant::iq4_nl:
    case Quant::mxfp4:
        return {i % 4, i / 4 * 4, 0, 0, 0};
    case Quant::q4_1:
        return {1 + i % 4, i / 4 * 4, 0, 0, 0};
    case Quant::q5_0:
        return {1 + i % 4, i / 4 * 4, 0, i, 0x10};
    case Quant::q5_1:
        return {2 + i % 4, i / 4 * 4, 1, i, 0x10};
    case Quant::q4_k:
        return {4 + part / 2 * 8 + j, part % 2 * 4, 0, 0, 0};
    case Quant::q5_k:
        return {12 + part / 2 * 8 + j, part % 2 * 4, 4 + j, part, 0x10};
    case Quant::q6_k:
        return {part / 4 * 16 + part % 2 * 8 + j, part % 4 / 2 * 4, 32 + part / 4 * 8 + j,
                part % 4 * 2, 0x30};
    case Quant::q2_k:
        return {4 + part / 4 * 8 + j, part % 4 * 2, 0, 0, 0};
    case Quant::q3_k:
        return {8 + part / 4 * 8 + j, part % 4 * 2, j, part, 0x04};
    case Quant::iq4_xs:
        return {2 + part * 4 + j % 4, j / 4 * 4, 0, 0, 0};
    }
    return {};
}

} // namespace stasis::kernels::STASIS_TABLE
