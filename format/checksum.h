// XXH3 checksums, which detect accidents at memory speed; SHA-256 (digest.h) detects tampering. The
// only file that uses the xxHash library (https://github.com/Cyan4973/xxHash, "XXH3").
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
