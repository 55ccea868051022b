// What kernels need to know of a type of integer weights (C8) at compile time: how its integers are
// stored, as u, which scales they come with, and in which words of a strip's block they lie.
#pragma once

#include "runtime/kernels/strips.h"

namespace stasis::kernels::STASIS_TABLE {

struct Kind {
    int shift;     // n = u - 2^shift; below 0: n = u
    bool has_sign; // u is an int8, else at most 63
    bool has_minimum;
    size_t parts; // sub-blocks with integer scales; 0: none
};

constexpr Kind kind_of(Quant type) {
    switch (type) {
    case Quant::q8_0:
        return {-1, true, false, 0};
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
    }
    return {};
}

// Where a word of four integers u of an output is put together from.
struct Place {
    size_t word;      // of a block: the integers, or four bits of each
    bool upper;       // which four
    size_t high_word; // their upper bits
    int high_bit;     // where those begin in each byte
    int high_mask;    // of a byte, once they are above the four; 0: there are none
};

// Word i holds elements 4 i to 4 i + 3 of the block.
constexpr Place place_of(Quant type, size_t i) {
    const size_t j = i % 8, part = i / 8; // word of a run of 32 elements, and which run
    switch (type) {
    case Quant::q8_0:
        return {i, false, 0, 0, 0};
    case Quant::q4_0:
        return {i % 4, i >= 4, 0, 0, 0};
    case Quant::q4_1:
        return {1 + i % 4, i >= 4, 0, 0, 0};
    case Quant::q5_0:
        return {1 + i % 4, i >= 4, 0, static_cast<int>(i), 0x10};
    case Quant::q5_1:
        return {2 + i % 4, i >= 4, 1, static_cast<int>(i), 0x10};
    case Quant::q4_k:
        return {4 + part / 2 * 8 + j, part % 2 != 0, 0, 0, 0};
    case Quant::q5_k:
        return {12 + part / 2 * 8 + j, part % 2 != 0, 4 + j, static_cast<int>(part), 0x10};
    case Quant::q6_k:
        return {part / 4 * 16 + part % 2 * 8 + j, part % 4 >= 2, 32 + part / 4 * 8 + j,
                static_cast<int>(part % 4 * 2), 0x30};
    }
    return {};
}

} // namespace stasis::kernels::STASIS_TABLE
