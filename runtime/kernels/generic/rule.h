// How the block rule (C1) cuts a sum of products.
#pragma once

#include <cstddef>

namespace stasis::kernels::STASIS_TABLE {

inline constexpr size_t kBlock = 32; // terms in a block of the rule

inline constexpr size_t blocks_in(size_t depth) {
    return (depth + kBlock - 1) / kBlock;
}

inline constexpr size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

} // namespace stasis::kernels::STASIS_TABLE
