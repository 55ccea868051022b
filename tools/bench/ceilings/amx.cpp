// Probes for AMX: tiles of 16 x 32 bf16 or 16 x 64 int8, four of them sums of 16 x 16, as a product
// with the best ratio of work to loads has them.
#include <immintrin.h>

#include "tools/bench/ceilings/probes.h"

namespace command::ceilings {

namespace {

constexpr size_t kTileBytes = 1024, kRowBytes = 64;
constexpr size_t kDepthTiles = 8; // of each of four panels: 32 KiB, which L1 holds

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

// One step: sums in tile `sum` of left operands in `left` and right ones in `right`.
struct Floats {
    static constexpr double kOperations = 2.0 * 16 * 16 * 32;
    template <int sum, int left, int right> static void step() {
        asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(left), "i"(right));
    }
};
struct Integers {
    static constexpr double kOperations = 2.0 * 16 * 16 * 64;
    template <int sum, int left, int right> static void step() {
        asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(left), "i"(right));
    }
};

template <typename Kind> double tile_loads(uint64_t rounds) {
    Panels panels;
    fill(panels);
    configure();
    const char *tiles = reinterpret_cast<const char *>(panels.bf16);
    for (uint64_t round = 0; round < rounds; ++round) {
        for (size_t i = 0; i < kDepthTiles; ++i, tiles += 4 * kTileBytes) {
            _tile_loadd(4, tiles, kRowBytes);
            _tile_loadd(6, tiles + kTileBytes, kRowBytes);
            Kind::template step<0, 4, 6>();
            _tile_loadd(7, tiles + 2 * kTileBytes, kRowBytes);
            Kind::template step<1, 4, 7>();
            _tile_loadd(5, tiles + 3 * kTileBytes, kRowBytes);
            Kind::template step<2, 5, 6>();
            Kind::template step<3, 5, 7>();
        }
        tiles -= kDepthTiles * 4 * kTileBytes;
    }
    _tile_release();
    return static_cast<double>(rounds) * kDepthTiles * 4 * Kind::kOperations;
}

template <typename Kind> double registers(uint64_t rounds) {
    Panels panels;
    fill(panels);
    configure();
    const char *tiles = reinterpret_cast<const char *>(panels.bf16);
    _tile_loadd(4, tiles, kRowBytes);
    _tile_loadd(5, tiles + kTileBytes, kRowBytes);
    _tile_loadd(6, tiles + 2 * kTileBytes, kRowBytes);
    _tile_loadd(7, tiles + 3 * kTileBytes, kRowBytes);
    for (uint64_t round = 0; round < rounds; ++round) {
        Kind::template step<0, 4, 6>();
        Kind::template step<1, 4, 7>();
        Kind::template step<2, 5, 6>();
        Kind::template step<3, 5, 7>();
    }
    _tile_release();
    return static_cast<double>(rounds) * 4 * Kind::kOperations;
}

} // namespace

double amx_tile_loads(uint64_t rounds) {
    return tile_loads<Floats>(rounds);
}
double amx_registers(uint64_t rounds) {
    return registers<Floats>(rounds);
}
double amx_int8_tile_loads(uint64_t rounds) {
    return tile_loads<Integers>(rounds);
}
double amx_int8_registers(uint64_t rounds) {
    return registers<Integers>(rounds);
}

} // namespace command::ceilings
