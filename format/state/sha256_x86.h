// The compression function of SHA-256 in the SHA instructions of x86, for several messages side by
// side. Must not use classes: the file that implements it is compiled for instructions that not
// every processor has.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis {

// Number of messages whose blocks are hashed side by side.
inline constexpr size_t kSha256Lanes = 3;

using Sha256State = uint32_t[8];

// Returns whether this processor has the instructions; false on every processor that is not x86.
bool has_sha256_instructions();
// Clears what wider vector instructions left in the upper halves of the vector registers. While
// something is there, SHA-256 in SSE instructions, libcrypto's as well, takes up to three times the
// time (Zen 4), because each instruction keeps the upper half of its result. Libraries leave
// something there (xxHash 0.8.1).
void clear_upper_halves();
// Hashes `blocks` blocks of 64 bytes into each of `lanes` states, 1 to kSha256Lanes. The processor
// must have the instructions.
void sha256_blocks(size_t lanes, Sha256State *const *states, const uint8_t *const *data,
                   size_t blocks);

} // namespace stasis
