// The sizes of packed activations (pack.cpp).
#pragma once

#include "runtime/kernels/amx/tile.h"
#include "runtime/kernels/generic/rule.h"

namespace stasis::kernels::amx {

// Groups of 16 rows, for more than 16 rows.
inline constexpr size_t groups(size_t rows) {
    return (rows + 2 * kTileRows - 1) / (2 * kTileRows) * 2;
}

} // namespace stasis::kernels::amx
