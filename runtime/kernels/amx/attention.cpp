// One block of attention (C5) in tiles, for 16 query rows at a time: scores are keys (left operand,
// as they lie) times queries, and are turned, so that a vector holds 16 slots of a row; outputs are
// weights (left operand) times values, whose slots are paired once per call.
#include "runtime/kernels/amx/kernels.h"
#include "runtime/kernels/amx/packed.h"
#include "runtime/kernels/avx512/vector.h"
#include "runtime/kernels/generic/lanes/functions.h"

namespace stasis::kernels::amx {

namespace {

// What one group of up to 16 query rows goes through.
struct Group {
    size_t row;                                          // of the task
    size_t count;                                        // rows
    alignas(64) float turned[kPagePositions][kTileRows]; // scores [slot][row]
    alignas(64) float scores[kTileRows][kPagePositions]; // [row][slot]
    alignas(64) uint16_t weights[2][kTileRows][32];      // p, bf16: [half of the slots][row][slot]
    alignas(64) float sums[2][kTileRows][kTileRows];
};

// The next block's values and then its keys, fetched a few lines at a time while this block is
// computed: all at once would take every buffer for lines on their way, and stop the computing.
class Next {
  public:
    explicit Next(const AttentionBlock &task)
        : values_(reinterpret_cast<const char *>(task.next_values)),
          keys_(reinterpret_cast<const char *>(task.next_keys)),
          lines_(task.next_keys == nullptr
                     ? 0
                     : kPagePositions * task.head_dim * sizeof(uint16_t) / 64) {}

    [[gnu::always_inline]] void fetch(size_t count) {
        for (; count > 0 && line_ < lines_; --count, ++line_) {
            fetch_far(values_ + line_ * 64);
        }
        for (; count > 0 && line_ < 2 * lines_; --count, ++line_) {
            fetch_far(keys_ + (line_ - lines_) * 64);
        }
    }
    size_t left() const { return 2 * lines_ - line_; }

  private:
    const char *values_, *keys_;
    size_t lines_, line_ = 0;
};

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
    store<0>(group.turned[0], 64), store<1>(group.turned[16], 64);
    store<2>(group.turned[32], 64), store<3>(group.turned[48], 64);
    for (size_t slot = 0; slot < kPagePositions; slot += kTileRows) {
        __m512i rows[16];
        for (size_t i = 0; i < 16; ++i) {
            rows[i] = _mm512_load_si512(group.turned[slot + i]);
        }
        Avx512::turn(rows);
        for (size_t r = 0; r < 16; ++r) {
            _mm512_store_si512(group.scores[r] + slot, rows[r]);
        }
    }
}

constexpr size_t kVectors = kPagePositions / kLanes; // of a row

// Which slots of a row are visible, 16 at a time: all of them, in most blocks.
struct Everything {
    Mask slots(size_t) const { return mask_of(0xFFFF); }
};
struct Visible {
    uint64_t row;
    Mask slots(size_t vector) const {
        return mask_of(static_cast<uint32_t>(row >> (vector * kLanes)) & 0xFFFFU);
    }
};

// One row's scores to weights; its maximum (a zero as +0) and sum (C4: lane j takes the slots j,
// j + 16, ...).
template <typename Seen>
void weigh(const AttentionBlock &task, const Seen &seen, size_t r, Group &group) {
    Lanes x[kVectors];
    Lanes maximum = broadcast(-__builtin_inff());
    for (size_t i = 0; i < kVectors; ++i) {
        x[i] = load(group.scores[r] + i * kLanes) * broadcast(task.scale);
        if (task.softcap != 0.0F) {
            x[i] = broadcast(task.softcap) * tanh(x[i] / broadcast(task.softcap));
        }
        maximum = select(seen.slots(i), larger(x[i], maximum), maximum);
    }
    const float largest = largest_of(maximum) + 0.0F;
    Lanes sum = broadcast(0.0F);
    for (size_t i = 0; i < kVectors; ++i) {
        const Lanes p = rounded_to_bf16(exp(x[i] - broadcast(largest)));
        const Lanes weight = select(seen.slots(i), p, broadcast(0.0F));
        sum = sum + weight;
        store_upper_halves(weight, group.weights[i / 2][r] + i % 2 * kLanes);
        if (task.weights != nullptr) {
            store_upper_halves(weight,
                               task.weights + (group.row + r) * kPagePositions + i * kLanes);
        }
    }
    task.maximum[group.row + r] = largest;
    task.sum[group.row + r] = sum_of(sum);
}

void weigh_rows(const AttentionBlock &task, Group &group, Next &next) {
    for (size_t r = 0; r < group.count; ++r) {
        const uint64_t visible = task.visible[group.row + r];
        if (visible == ~uint64_t{0}) {
            weigh(task, Everything{}, r, group);
        } else if (visible != 0) {
            weigh(task, Visible{visible}, r, group);
        }
        next.fetch(next.left() / (group.count - r));
    }
}

// 32 dimensions of a slot that some row sees; +0 of one that none does: its bits are not numbers.
__m512i load_value(const AttentionBlock &task, uint64_t some, size_t slot, size_t dim) {
    if ((some >> slot & 1U) == 0) {
        return _mm512_setzero_si512();
    }
    const size_t count = smaller(task.head_dim - dim, kBlock);
    return _mm512_maskz_loadu_epi16(static_cast<__mmask32>(~uint64_t{0} >> (64 - count)),
                                    task.values + slot * task.head_dim + dim);
}

// Values as right operands: for each 32 dimensions four tiles of paired slots, two (one for each
// half of the slots) with the dimensions that the instruction takes from the lower halves of the
// 128-bit lanes, two from the upper ones.
void pair_values(const AttentionBlock &task, uint64_t some, uint8_t *tiles, Next &next) {
    for (size_t dim = 0; dim < task.head_dim; dim += kBlock, tiles += 4 * kTileBytes) {
        for (size_t pair = 0; pair < kPagePositions / 2; ++pair) {
            const __m512i even = load_value(task, some, 2 * pair, dim);
            const __m512i odd = load_value(task, some, 2 * pair + 1, dim);
            uint8_t *to = tiles + pair / 16 * kTileBytes + pair % 16 * 64;
            _mm512_store_si512(to, _mm512_unpacklo_epi16(even, odd));
            _mm512_store_si512(to + 2 * kTileBytes, _mm512_unpackhi_epi16(even, odd));
            next.fetch(2);
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
    pair_values(task, some, values, next);
    Tiles tiles(TileConfig(kTileRows, kTileRows));
    Group group;
    for (group.row = 0; group.row < task.rows; group.row += kTileRows) {
        group.count = smaller(task.rows - group.row, kTileRows);
        score(task, tiles, group, next);
        weigh_rows(task, group, next);
        weigh_values(task, values, tiles, group);
    }
}

} // namespace stasis::kernels::amx
