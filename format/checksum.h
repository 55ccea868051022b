// XXH3 checksums, against accidents at memory speed (tampering is SHA-256's concern, digest.h).
// The only door to the xxHash library (https://github.com/Cyan4973/xxHash, "XXH3").
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis::format {

struct Checksum {
    uint64_t low = 0;
    uint64_t high = 0;
    bool operator==(const Checksum &) const = default;
};

Checksum checksum(const void *data, size_t size_bytes);   // XXH3-128
uint64_t checksum64(const void *data, size_t size_bytes); // XXH3-64

} // namespace stasis::format
