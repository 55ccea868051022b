// Activations as right operands: for 16 rows of x and 32 terms, a tile [16 pairs of
// terms][rows][2]. Up to 16 rows form one group as wide as they are; more are filled up with +0 to
// groups of 16, an even number of them. A group holds its tiles in ascending order of k.
#include "runtime/kernels/amx/kernels.h"
#include "runtime/kernels/amx/packed.h"
#include "runtime/kernels/avx512/vector.h"

namespace stasis::kernels::amx {

namespace {

// 32 terms of a row from k on, +0 beyond the row's end.
__m512i load_terms(const uint16_t *row, size_t k, size_t depth) {
    const size_t terms = smaller(depth - k, kBlock);
    return _mm512_maskz_loadu_epi16(static_cast<__mmask32>(~uint64_t{0} >> (64 - terms)), row + k);
}

void pack_narrow(const Pack &task) {
    auto *packed = static_cast<uint32_t *>(task.packed);
    for (size_t block = 0; block < blocks_in(task.depth); ++block) {
        for (size_t r = 0; r < task.rows; ++r) {
            alignas(64) uint32_t pairs[16];
            _mm512_store_si512(pairs,
                               load_terms(task.x + r * task.x_stride, block * kBlock, task.depth));
            for (size_t p = 0; p < 16; ++p) {
                packed[(block * 16 + p) * task.rows + r] = pairs[p];
            }
        }
    }
}

void pack_group(const Pack &task, size_t first, uint8_t *group) {
    const size_t rows = smaller(task.rows - first, kTileRows);
    for (size_t block = 0; block < blocks_in(task.depth); ++block) {
        __m512i pairs[16];
        for (size_t r = 0; r < 16; ++r) {
            pairs[r] = _mm512_setzero_si512();
            if (r < rows) {
                pairs[r] =
                    load_terms(task.x + (first + r) * task.x_stride, block * kBlock, task.depth);
            }
        }
        Avx512::turn(pairs);
        for (size_t p = 0; p < 16; ++p) {
            _mm512_store_si512(group + block * kTileBytes + p * 64, pairs[p]);
        }
    }
}

} // namespace

size_t packed_bytes(size_t rows, size_t depth) {
    return (rows <= kTileRows ? rows : groups(rows) * kTileRows) * blocks_in(depth) * 64;
}

void pack(const Pack &task, size_t begin, size_t end) {
    if (task.rows <= kTileRows) {
        pack_narrow(task);
        return;
    }
    auto *packed = static_cast<uint8_t *>(task.packed);
    const size_t group_bytes = blocks_in(task.depth) * kTileBytes;
    for (size_t row = begin; row < end; row += kTileRows) {
        pack_group(task, row, packed + row / kTileRows * group_bytes);
    }
    const size_t last = (task.rows + kTileRows - 1) / kTileRows;
    if (end == task.rows && last != groups(task.rows)) { // the group that makes their number even
        __builtin_memset(packed + last * group_bytes, 0, group_bytes);
    }
}

} // namespace stasis::kernels::amx
