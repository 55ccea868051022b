// Adds up the sixteen lanes of a C4 sum in f64, in their order. Knows no terms.
#pragma once

#include <array>
#include <cstddef>

namespace stasis {

using Lanes = std::array<double, 16>;

// Halves the lanes until one is left, as C4 orders it.
inline double sum_of(Lanes lanes) {
    for (size_t width = 8; width > 0; width /= 2) {
        for (size_t j = 0; j < width; ++j) {
            lanes[j] += lanes[j + width];
        }
    }
    return lanes[0];
}

} // namespace stasis
