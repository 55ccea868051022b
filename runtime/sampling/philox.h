// Philox 4x32-10, the counter-based generator of C7: a block of 128 random bits is a pure function
// of a counter and a key. Knows neither sessions nor sampling.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace stasis {

constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t even = uint64_t{0xD2511F53U} * counter[0];
        const uint64_t odd = uint64_t{0xCD9E8D57U} * counter[2];
        counter = {
            static_cast<uint32_t>(odd >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(odd),
            static_cast<uint32_t>(even >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(even)};
        key[0] += 0x9E3779B9U; // Weyl sequences: golden ratio and sqrt(3) - 1, as 32-bit fractions
        key[1] += 0xBB67AE85U;
    }
    return counter;
}

} // namespace stasis
