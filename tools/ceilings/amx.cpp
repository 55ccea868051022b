// Probes for AMX: tiles of 16 x 32 bf16, four of them sums of 16 x 16 f32, as a product with the
// best ratio of work to loads has them.
#include <immintrin.h>

#include "tools/ceilings/probes.h"

namespace command::ceilings {

namespace {

constexpr size_t kTileBytes = 1024, kRowBytes = 64;
constexpr size_t kDepthTiles = 8; // of each of four panels: 32 KiB, which L1 holds
constexpr double kTileOperations = 2.0 * 16 * 16 * 32;

struct alignas(64) TileConfiguration { // Intel SDM, volume 1, "Tile architecture"
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

struct alignas(64) Panels {
    uint16_t bf16[4 * kDepthTiles * kTileBytes / 2];
};

// gcc 12's tile intrinsics do not say what memory they read.
void settle(const void *memory) {
    asm volatile("" : : "r"(memory) : "memory");
}

void configure() {
    TileConfiguration configuration = {};
    configuration.palette = 1;
    for (int tile = 0; tile < 8; ++tile) {
        configuration.row_bytes[tile] = kRowBytes;
        configuration.rows[tile] = 16;
    }
    settle(&configuration);
    _tile_loadconfig(&configuration);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

// Numbers between 1 and 2, no two neighbours alike: on zeros the machine would run cooler.
void fill(Panels &panels) {
    uint32_t state = 1;
    for (uint16_t &value : panels.bf16) {
        state = state * 1664525 + 1013904223;
        value = static_cast<uint16_t>(0x3F80 | state >> 25);
    }
    settle(&panels);
}

} // namespace

double amx_tile_loads(uint64_t rounds) {
    Panels panels;
    fill(panels);
    configure();
    const char *tiles = reinterpret_cast<const char *>(panels.bf16);
    for (uint64_t round = 0; round < rounds; ++round) {
        for (size_t i = 0; i < kDepthTiles; ++i, tiles += 4 * kTileBytes) {
            _tile_loadd(4, tiles, kRowBytes);
            _tile_loadd(6, tiles + kTileBytes, kRowBytes);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(7, tiles + 2 * kTileBytes, kRowBytes);
            _tile_dpbf16ps(1, 4, 7);
            _tile_loadd(5, tiles + 3 * kTileBytes, kRowBytes);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        tiles -= kDepthTiles * 4 * kTileBytes;
    }
    _tile_release();
    return static_cast<double>(rounds) * kDepthTiles * 4 * kTileOperations;
}

double amx_registers(uint64_t rounds) {
    Panels panels;
    fill(panels);
    configure();
    const char *tiles = reinterpret_cast<const char *>(panels.bf16);
    _tile_loadd(4, tiles, kRowBytes);
    _tile_loadd(5, tiles + kTileBytes, kRowBytes);
    _tile_loadd(6, tiles + 2 * kTileBytes, kRowBytes);
    _tile_loadd(7, tiles + 3 * kTileBytes, kRowBytes);
    for (uint64_t round = 0; round < rounds; ++round) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return static_cast<double>(rounds) * 4 * kTileOperations;
}

} // namespace command::ceilings
