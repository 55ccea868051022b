// What tiles are and how they are configured (Intel SDM, volume 2, LDTILECFG).
#pragma once

#include <cstddef>
#include <cstdint>

namespace stasis::kernels::amx {

inline constexpr size_t kTileRows = 16;    // of any tile
inline constexpr size_t kTileBytes = 1024; // 16 rows of 64 bytes

// Tiles 0-3 are sums, 4-5 left operands (16 rows, up to 32 terms of bf16), 6-7 right operands
// (pairs of terms, up to 16 columns).
struct alignas(64) TileConfig {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};

    // Sums of `rows_left` by `columns`.
    TileConfig(size_t rows_left, size_t columns) {
        for (size_t tile = 0; tile < 8; ++tile) {
            const bool left = tile == 4 || tile == 5;
            const bool right = tile >= 6;
            rows[tile] = static_cast<uint8_t>(right ? kTileRows : rows_left);
            row_bytes[tile] = static_cast<uint16_t>(left ? 64 : 4 * columns);
        }
    }
};

} // namespace stasis::kernels::amx
