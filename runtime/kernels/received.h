// Attention that positions receive, in fixed point, so that sums are exact in any order (C10).
#pragma once

#include <cstdint>

namespace stasis::kernels {

// Adds to received[slot], kPagePositions of them, what one row's block gives: its weights p (bf16)
// and maximum m_b; m and l are what all of the row's blocks merged to. Adds nothing where a number
// is not finite.
void add_received(const uint16_t *p, float m_b, float m, float l, uint64_t *received);

// The whole attention of one query head.
inline constexpr double kReceivedOne = 0x1p32;
// Rows, times layers, times query heads, whose sums are safe are fewer.
inline constexpr uint64_t kReceivedLimit = uint64_t{1} << 32;

} // namespace stasis::kernels
