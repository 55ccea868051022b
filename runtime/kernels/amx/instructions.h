// Tile instructions (Intel SDM, volume 2). Written as assembler: gcc 12's intrinsics do not tell
// the compiler that tiles are read from and written to memory. Tests put a text of their own in
// place of this file, which computes the same without tiles.
#pragma once

#include "runtime/kernels/amx/config.h"

namespace stasis::kernels::amx {

[[gnu::always_inline]] inline void load_config(const TileConfig &config) {
    asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
}

[[gnu::always_inline]] inline void release() {
    asm volatile("tilerelease" ::: "memory");
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
