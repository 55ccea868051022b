// Tile instructions (Intel SDM, volume 2). Written as assembler: gcc 12's intrinsics do not tell
// the compiler that tiles are read from and written to memory.
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

// The tiles of the calling thread for the length of a kernel. Releasing them keeps the thread's
// state small for whoever switches it out.
class Tiles {
  public:
    explicit Tiles(const TileConfig &config) { configure(config); }
    ~Tiles() { asm volatile("tilerelease" ::: "memory"); }
    Tiles(const Tiles &) = delete;
    Tiles &operator=(const Tiles &) = delete;

    void configure(const TileConfig &config) {
        asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
    }
};

// A cache line into the first or the second level of caches. As assembler too: gcc 12 takes a
// function that only prefetches for one without effect, and drops its calls.
[[gnu::always_inline]] inline void fetch_near(const void *line) {
    asm volatile("prefetcht0 %0" ::"m"(*static_cast<const char *>(line)));
}
[[gnu::always_inline]] inline void fetch_far(const void *line) {
    asm volatile("prefetcht1 %0" ::"m"(*static_cast<const char *>(line)));
}

template <int tile> [[gnu::always_inline]] inline void zero() {
    asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}

// 16 rows (or as configured), `stride` bytes apart.
template <int tile> [[gnu::always_inline]] inline void load(const void *from, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
}

// The same without keeping what is read in the first level of caches.
template <int tile>
[[gnu::always_inline]] inline void load_passing(const void *from, size_t stride) {
    asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
}

template <int tile> [[gnu::always_inline]] inline void store(void *to, size_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
}

// sum += left x right: one block of the block rule for each of the sums.
template <int sum, int left, int right> [[gnu::always_inline]] inline void multiply_add() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(left), "i"(right));
}

// The same of signed bytes into int32: up to 64 terms, four to a word.
template <int sum, int left, int right> [[gnu::always_inline]] inline void multiply_add_bytes() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sum), "i"(left), "i"(right));
}

} // namespace stasis::kernels::amx
