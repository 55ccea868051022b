// Conversions between f32 and bf16 (C6). A bf16 value is its raw bits.
#pragma once

#include <cstdint>

#include "runtime/kernels/anywhere.h"

namespace stasis::kernels {

STASIS_ANYWHERE float bf16_to_f32(uint16_t value) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(value) << 16);
}

STASIS_ANYWHERE bool is_finite_bf16(uint16_t value) {
    return (value & 0x7F80U) != 0x7F80U;
}

// Rounds to nearest even; denormal results and -0 become +0 (C2, C9); NaN stays a quiet NaN.
STASIS_ANYWHERE uint16_t f32_to_bf16(float value) {
    uint32_t bits = __builtin_bit_cast(uint32_t, value);
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) {
        return static_cast<uint16_t>((bits >> 16) | 0x0040U);
    }
    if (magnitude < 0x00800000U) { // C2: an f32 denormal is zero before it is rounded
        return 0;
    }
    bits += 0x7FFFU + ((bits >> 16) & 1U);
    return static_cast<uint16_t>(bits >> 16);
}

} // namespace stasis::kernels
