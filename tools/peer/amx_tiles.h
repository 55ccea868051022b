// Tile instructions for llama.cpp where gcc's own do not say what memory they read: gcc 12 then
// leaves out stores before LDTILECFG and TILELOADD, which ends in an illegal instruction for every
// quantised model. Included before anything else in its source (amx_tiles.cmake).
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

#define _tile_loadconfig(config)                                                                   \
    __asm__ volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])(config)) : "memory")

#undef _tile_loadd_internal // which _tile_loadd calls with the tile's number
#define _tile_loadd_internal(tile, base, stride)                                                   \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"((const void *)(base)),               \
                     "r"((long)(stride))                                                           \
                     : "memory")
#endif
