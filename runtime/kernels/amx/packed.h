// The sizes of packed activations (pack.cpp), and of what is left of anything.
#pragma once

#include "runtime/kernels/amx/tile.h"

namespace stasis::kernels::amx {

inline size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

inline constexpr size_t kBlock = 32; // terms of the block rule (C1)

// Tiles along k.
inline constexpr size_t blocks(size_t depth) {
    return (depth + kBlock - 1) / kBlock;
}

// Groups of 16 rows, for more than 16 rows.
inline constexpr size_t groups(size_t rows) {
    return (rows + 2 * kTileRows - 1) / (2 * kTileRows) * 2;
}

} // namespace stasis::kernels::amx
