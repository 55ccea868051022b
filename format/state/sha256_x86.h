// The compression function of SHA-256 in the SHA instructions of x86, for several messages side by
// side. Knows no class, for what implements it is compiled for more than every processor has.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis {

// Messages whose blocks are taken in side by side.
inline constexpr size_t kSha256Lanes = 3;

using Sha256State = uint32_t[8];

// Whether this processor has the instructions; false on all that are not x86.
bool has_sha256_instructions();
// Clears what wider vector instructions left in the upper halves of the vector registers. While it is
// there, SHA-256 in SSE instructions, libcrypto's as well, takes up to three times the time (Zen 4):
// each instruction has to keep the upper half of its result. Libraries leave it there (xxHash 0.8.1).
void clear_upper_halves();
// Takes in `blocks` blocks of 64 bytes for each of 1 to kSha256Lanes states. Expects the
// instructions.
void sha256_blocks(size_t lanes, Sha256State *const *states, const uint8_t *const *data,
                   size_t blocks);

} // namespace stasis
