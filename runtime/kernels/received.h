// Attention received by positions (C10), in fixed point, so that sums are exact in any order. Knows
// no sessions.
#pragma once

#include <cstdint>

namespace stasis::kernels {

// Adds the attention that one row's block gives to received[slot], for kPagePositions slots. p
// (bf16) are the block's weights and m_b its maximum; m and l are the results of merging all of the
// row's blocks. Adds nothing if a number is not finite.
void add_received(const uint16_t *p, float m_b, float m, float l, uint64_t *received);

// The fixed-point value of the whole attention of one query head.
inline constexpr double kReceivedOne = 0x1p32;
// Sums are safe if rows times layers times query heads are fewer than this.
inline constexpr uint64_t kReceivedLimit = uint64_t{1} << 32;

} // namespace stasis::kernels
