// Numbers of the snapshot format that writer, reader and tests share (FORMAT.md names each).
// Knows no code.
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis::format {

inline constexpr uint8_t kMagic[8] = {0x89, 'S', 'T', 'A', 'S', 'I', 'S', '\n'};
inline constexpr uint32_t kFormatVersion = 0;

// Header, root slot A, root slot B; each a block that a disk writes whole.
inline constexpr size_t kBlockBytes = 4096;
inline constexpr uint64_t kSlotA = kBlockBytes;
inline constexpr uint64_t kSlotB = 2 * kBlockBytes;
inline constexpr uint64_t kSectionsBegin = 3 * kBlockBytes;

inline constexpr uint64_t kAlignment = 64; // of sections, of the manifest and of page buffers
constexpr uint64_t align_up(uint64_t offset) {
    return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

inline constexpr uint64_t kManifestBytesMax = 64U << 20;
inline constexpr uint32_t kGeometryMax = 1U
                                         << 16; // layers, KV heads, head_dim: products fit 64 bits
inline constexpr uint32_t kPagePositionsStep = 32;
inline constexpr uint32_t kPagePositionsMax = 256; // bounds what a short last page can allocate
inline constexpr size_t kSamplingsMax = 1U << 16;
inline constexpr size_t kTopMax = 64;

// Between two looks at the Watch.
inline constexpr size_t kChunkBytes = 4U << 20;

} // namespace stasis::format
