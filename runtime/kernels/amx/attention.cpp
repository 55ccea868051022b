// One block of attention (C5) in tiles, for 16 query rows at a time: scores are keys (left operand,
// as they lie) times queries; outputs are weights (left operand, weigh.h) times values, whose slots
// are paired once per call.
#include "runtime/kernels/amx/kernels.h"
#include "runtime/kernels/amx/packed.h"
#include "runtime/kernels/amx/weigh.h"

namespace stasis::kernels::amx {

namespace {

// 16 keys from slot `slot` on, terms from k on; +0 beyond head_dim.
void load_keys(const AttentionBlock &task, size_t slot, size_t k) {
    const uint16_t *keys = task.keys + slot * task.head_dim + k;
    if (k + kBlock <= task.head_dim) {
        load<4>(keys, task.head_dim * sizeof(uint16_t));
        return;
    }
    alignas(64) uint16_t tail[kTileRows][kBlock] = {};
    for (size_t i = 0; i < kTileRows; ++i) {
        __builtin_memcpy(tail[i], keys + i * task.head_dim, (task.head_dim - k) * sizeof(uint16_t));
    }
    load<4>(tail, 64);
}

void score(const AttentionBlock &task, Tiles &tiles, Group &group, Next &next) {
    const size_t columns = smaller(task.rows, kTileRows);
    const size_t step_bytes = columns * 64; // of the queries, one block of terms
    const auto *query = static_cast<const uint8_t *>(task.query) +
                        group.row / kTileRows * blocks_in(task.head_dim) * kTileBytes;
    tiles.configure(TileConfig(kTileRows, columns));
    zero<0>(), zero<1>(), zero<2>(), zero<3>();
    for (size_t block = 0; block < blocks_in(task.head_dim); ++block) {
        const size_t k = block * kBlock;
        load<6>(query + block * step_bytes, columns * 4);
        load_keys(task, 0, k);
        multiply_add<0, 4, 6>();
        next.fetch(8);
        load_keys(task, 16, k);
        multiply_add<1, 4, 6>();
        next.fetch(8);
        load_keys(task, 32, k);
        multiply_add<2, 4, 6>();
        next.fetch(8);
        load_keys(task, 48, k);
        multiply_add<3, 4, 6>();
        next.fetch(8);
    }
    store<0>(group.scores[0], 64), store<1>(group.scores[16], 64);
    store<2>(group.scores[32], 64), store<3>(group.scores[48], 64);
}

// 32 dimensions of every slot, all of which are there and are numbers.
struct WholeValues {
    const uint16_t *values;
    size_t head_dim;
    __m512i load(size_t slot, size_t dim) const {
        return _mm512_loadu_si512(values + slot * head_dim + dim);
    }
};
// The same where a slot that no row sees may hold anything, and head_dim may end: +0 there.
struct PartOfValues {
    const uint16_t *values;
    size_t head_dim;
    uint64_t some; // slots that some row sees
    __m512i load(size_t slot, size_t dim) const {
        const size_t count = smaller(head_dim - dim, kBlock);
        const uint64_t terms = (some >> slot & 1U) != 0 ? ~uint64_t{0} >> (64 - count) : 0;
        return _mm512_maskz_loadu_epi16(static_cast<__mmask32>(terms),
                                        values + slot * head_dim + dim);
    }
};

// Values as right operands: for each 32 dimensions four tiles of paired slots, two (one for each
// half of the slots) with the dimensions that the instruction takes from the lower halves of the
// 128-bit lanes, two from the upper ones.
template <typename Values> void pair_values(const Values &values, uint8_t *tiles, Next &next) {
    for (size_t dim = 0; dim < values.head_dim; dim += kBlock, tiles += 4 * kTileBytes) {
        for (size_t first = 0; first < kPagePositions / 2; first += 4) {
#pragma GCC unroll 4
            for (size_t pair = first; pair < first + 4; ++pair) {
                const __m512i even = values.load(2 * pair, dim);
                const __m512i odd = values.load(2 * pair + 1, dim);
                uint8_t *to = tiles + pair / 16 * kTileBytes + pair % 16 * 64;
                _mm512_store_si512(to, _mm512_unpacklo_epi16(even, odd));
                _mm512_store_si512(to + 2 * kTileBytes, _mm512_unpackhi_epi16(even, odd));
            }
            next.fetch(8);
        }
    }
}

// 32 dimensions of a row back in order, a zero as +0.
void store_output(const float *lower, const float *upper, size_t count, float *output) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second =
        _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    const __m512 a = load(lower).all, b = load(upper).all;
    const Lanes low = {_mm512_permutex2var_ps(a, first, b)};
    const Lanes high = {_mm512_permutex2var_ps(a, second, b)};
    store(low + broadcast(0.0F), output, smaller(count, kLanes));
    if (count > kLanes) {
        store(high + broadcast(0.0F), output + kLanes, count - kLanes);
    }
}

void weigh_values(const AttentionBlock &task, const uint8_t *values, Tiles &tiles, Group &group) {
    tiles.configure(TileConfig(group.count, kTileRows));
    load<4>(group.weights[0], 64);
    load<5>(group.weights[1], 64);
    for (size_t dim = 0; dim < task.head_dim; dim += kBlock, values += 4 * kTileBytes) {
        zero<0>(), zero<1>();
        load<6>(values, 64);
        multiply_add<0, 4, 6>();
        load<7>(values + 2 * kTileBytes, 64);
        multiply_add<1, 4, 7>();
        load<6>(values + kTileBytes, 64);
        multiply_add<0, 5, 6>();
        load<7>(values + 3 * kTileBytes, 64);
        multiply_add<1, 5, 7>();
        store<0>(group.sums[0], 64);
        store<1>(group.sums[1], 64);
        const size_t count = smaller(task.head_dim - dim, kBlock);
        for (size_t r = 0; r < group.count; ++r) {
            if (task.visible[group.row + r] != 0) {
                store_output(group.sums[0][r], group.sums[1][r], count,
                             task.output + (group.row + r) * task.head_dim + dim);
            }
        }
    }
}

} // namespace

void attention_block(const AttentionBlock &task) {
    uint64_t some = 0;
    for (size_t r = 0; r < task.rows; ++r) {
        some |= task.visible[r];
    }
    if (some == 0) {
        return;
    }
    auto *values = static_cast<uint8_t *>(task.scratch);
    Next next(task);
    if (some == ~uint64_t{0} && task.head_dim % kBlock == 0) {
        pair_values(WholeValues{task.values, task.head_dim}, values, next);
    } else {
        pair_values(PartOfValues{task.values, task.head_dim, some}, values, next);
    }
    Tiles tiles(TileConfig(kTileRows, kTileRows));
    Group group;
    for (group.row = 0; group.row < task.rows; group.row += kTileRows) {
        group.count = smaller(task.rows - group.row, kTileRows);
        score(task, tiles, group, next);
        weigh(task, group, next);
        weigh_values(task, values, tiles, group);
    }
}

} // namespace stasis::kernels::amx
