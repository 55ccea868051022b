// Converts f16 of files (IEEE 754 binary16) to f32, which holds every value. Knows no files.
#pragma once

#include <bit>
#include <cstdint>

namespace stasis {

// Uses integer and exact operations only, so neither rounding mode nor flushing matters.
inline float f16_to_f32(uint16_t value) {
    const uint32_t sign = static_cast<uint32_t>(value & 0x8000U) << 16;
    const uint32_t exponent = (value >> 10) & 0x1FU;
    const uint32_t fraction = value & 0x3FFU;
    uint32_t bits = 0;
    if (exponent == 0) { // zero or denormal: fraction * 2^-24, a normal f32
        bits = std::bit_cast<uint32_t>(static_cast<float>(fraction) * 0x1p-24F);
    } else if (exponent == 0x1F) {
        bits = 0x7F800000U | (fraction << 13);
    } else {
        bits = ((exponent + 127 - 15) << 23) | (fraction << 13);
    }
    return std::bit_cast<float>(sign | bits);
}

} // namespace stasis
