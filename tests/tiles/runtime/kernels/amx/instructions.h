// Stands in for the tile instructions, so that the kernels of AMX run on processors with AVX-512
// that have none. Computes what the Intel SDM, volume 2, states of each instruction. A tile that is
// used otherwise than it is configured ends the program, as an invalid instruction would.
#pragma once

#include <cstdlib>
#include <cstring>

#include "runtime/kernels/amx/config.h"
#include "runtime/kernels/avx512/intrinsics.h"

namespace stasis::kernels::amx {

struct TileState {
    bool configured = false;
    uint8_t rows[8] = {};
    uint16_t row_bytes[8] = {};
    alignas(64) uint8_t data[8][kTileRows][64] = {};
};
inline thread_local TileState thread_tiles;

inline void expect(bool holds) {
    if (!holds) {
        std::abort();
    }
}

inline void load_config(const TileConfig &config) {
    expect(config.palette == 1 && config.start_row == 0);
    thread_tiles = {};
    thread_tiles.configured = true;
    for (size_t tile = 0; tile < 8; ++tile) {
        expect(config.rows[tile] <= kTileRows && config.row_bytes[tile] <= 64);
        thread_tiles.rows[tile] = config.rows[tile];
        thread_tiles.row_bytes[tile] = config.row_bytes[tile];
    }
}

inline void release() {
    thread_tiles.configured = false;
}

template <int tile> void zero() {
    expect(thread_tiles.configured);
    std::memset(thread_tiles.data[tile], 0, kTileBytes);
}

template <int tile> void load(const void *from, size_t stride) {
    zero<tile>();
    for (size_t row = 0; row < thread_tiles.rows[tile]; ++row) {
        std::memcpy(thread_tiles.data[tile][row], static_cast<const uint8_t *>(from) + row * stride,
                    thread_tiles.row_bytes[tile]);
    }
}

template <int tile> void load_passing(const void *from, size_t stride) {
    load<tile>(from, stride);
}

template <int tile> void store(void *to, size_t stride) {
    expect(thread_tiles.configured);
    for (size_t row = 0; row < thread_tiles.rows[tile]; ++row) {
        std::memcpy(static_cast<uint8_t *>(to) + row * stride, thread_tiles.data[tile][row],
                    thread_tiles.row_bytes[tile]);
    }
}

// The shapes that a product wants: rows of the left operand and of the sums, columns of the right
// one and of the sums, and as many words in a row of the left one as the right one has rows.
template <int sum, int left, int right> void expect_shapes() {
    expect(thread_tiles.configured && thread_tiles.rows[sum] == thread_tiles.rows[left] &&
           thread_tiles.row_bytes[sum] == thread_tiles.row_bytes[right] &&
           thread_tiles.row_bytes[left] == 4 * thread_tiles.rows[right]);
}

// TDPBF16PS: the products of even terms and those of odd ones each in a chain that begins with 0,
// their sum added to what is there. Rounds to nearest and flushes, whatever MXCSR says.
template <int sum, int left, int right> void multiply_add() {
    expect_shapes<sum, left, right>();
    constexpr unsigned kAllMasked = 0x1F80, kFlush = 0x8040; // Intel SDM, volume 1, 10.2.3
    const unsigned before = _mm_getcsr();
    _mm_setcsr(kAllMasked | kFlush);
    const auto high = _mm512_set1_epi32(static_cast<int>(0xFFFF0000U));
    const auto odd_of = [&](__m512i words) {
        return _mm512_castsi512_ps(_mm512_and_si512(words, high));
    };
    const auto even_of = [](__m512i words) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
    };
    for (size_t row = 0; row < thread_tiles.rows[sum]; ++row) {
        __m512 even = _mm512_setzero_ps(), odd = _mm512_setzero_ps();
        for (size_t word = 0; word < thread_tiles.rows[right]; ++word) {
            int pair;
            std::memcpy(&pair, thread_tiles.data[left][row] + 4 * word, sizeof pair);
            const __m512i x = _mm512_set1_epi32(pair),
                          w = _mm512_load_si512(thread_tiles.data[right][word]);
            even = _mm512_fmadd_ps(even_of(x), even_of(w), even);
            odd = _mm512_fmadd_ps(odd_of(x), odd_of(w), odd);
        }
        auto *to = reinterpret_cast<float *>(thread_tiles.data[sum][row]);
        _mm512_store_ps(to, _mm512_add_ps(_mm512_load_ps(to), _mm512_add_ps(even, odd)));
    }
    _mm_setcsr(before);
}

// TDPBSSD: four products of signed bytes added to each int32.
template <int sum, int left, int right> void multiply_add_bytes() {
    expect_shapes<sum, left, right>();
    for (size_t row = 0; row < thread_tiles.rows[sum]; ++row) {
        alignas(64) int32_t sums[16];
        std::memcpy(sums, thread_tiles.data[sum][row], sizeof sums);
        for (size_t word = 0; word < thread_tiles.rows[right]; ++word) {
            for (size_t column = 0; column < 16; ++column) {
                for (size_t byte = 0; byte < 4; ++byte) {
                    const auto x =
                        static_cast<int8_t>(thread_tiles.data[left][row][4 * word + byte]);
                    const auto w =
                        static_cast<int8_t>(thread_tiles.data[right][word][4 * column + byte]);
                    sums[column] += x * w;
                }
            }
        }
        std::memcpy(thread_tiles.data[sum][row], sums, sizeof sums);
    }
}

} // namespace stasis::kernels::amx
