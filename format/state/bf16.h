// The bf16 numbers that a state may hold: finite ones. Kernels, which include nothing from here,
// have their own test in runtime/kernels/bf16.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace stasis {

// Infinities and NaN have an exponent of ones.
constexpr bool is_finite_bf16(uint16_t bits) {
    return (bits & 0x7F80) != 0x7F80;
}

// Computes a maximum without branches, so that compilers vectorise the loop (g++ from -O3 on;
// always inline, so that no file gets the function of another one's options).
[[gnu::always_inline]] inline bool all_finite_bf16(const uint16_t *bits, size_t count) {
    int16_t exponents = 0;
    for (size_t i = 0; i < count; ++i) {
        exponents = std::max(exponents, static_cast<int16_t>(bits[i] & 0x7F80));
    }
    return exponents != 0x7F80;
}

} // namespace stasis
