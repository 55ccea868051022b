// Which bf16 numbers may be in a state: finite ones. Both those who compute them and those who
// store them ask this. (Kernels, which include nothing from here, have their own in
// runtime/kernels/bf16.h.)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace stasis {

// Infinities and NaN have an exponent of ones.
constexpr bool is_finite_bf16(uint16_t bits) {
    return (bits & 0x7F80) != 0x7F80;
}

// Computes a maximum without branches, so that the loop runs in vectors.
inline bool all_finite_bf16(const uint16_t *bits, size_t count) {
    int16_t exponents = 0;
    for (size_t i = 0; i < count; ++i) {
        exponents = std::max(exponents, static_cast<int16_t>(bits[i] & 0x7F80));
    }
    return exponents != 0x7F80;
}

} // namespace stasis
