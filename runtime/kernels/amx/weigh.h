// Scores of a group of query rows to weights (C4, C5), in whichever order takes fewer instructions:
// lanes are the rows, where there are many, else the slots. Both orders give the same bits.
#pragma once

#include "runtime/kernels/amx/tile.h"
#include "runtime/kernels/avx512/vector.h"
#include "runtime/kernels/generic/lanes/functions.h"

namespace stasis::kernels::amx {

// What one group of up to 16 query rows goes through.
struct Group {
    size_t row;                                          // of the task
    size_t count;                                        // rows
    alignas(64) float scores[kPagePositions][kTileRows]; // [slot][row]
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

    void fetch(size_t count) {
        const size_t end = smaller(line_ + count, 2 * lines_);
        for (size_t line = line_; line < end; ++line) {
            fetch_far(line < lines_ ? values_ + line * 64 : keys_ + (line - lines_) * 64);
        }
        line_ = end;
    }
    size_t left() const { return 2 * lines_ - line_; }

  private:
    const char *values_, *keys_;
    size_t lines_, line_ = 0;
};

// Scores as the softmax takes them.
[[gnu::always_inline]] inline Lanes scaled(const AttentionBlock &task, Lanes score) {
    const Lanes x = score * broadcast(task.scale);
    return task.softcap == 0.0F ? x : broadcast(task.softcap) * tanh(x / broadcast(task.softcap));
}

namespace by_slots {

constexpr size_t kVectors = kPagePositions / kLanes; // of a row

// One row's scores to weights; its maximum (a zero as +0) and sum (C4: lane j takes the slots j,
// j + 16, ...).
inline void weigh(const AttentionBlock &task, const float *scores, size_t r, Group &group) {
    const uint64_t visible = task.visible[group.row + r];
    const auto seen = [&](size_t vector) {
        return mask_of(static_cast<uint32_t>(visible >> (vector * kLanes)) & 0xFFFFU);
    };
    Lanes x[kVectors];
    Lanes maximum = broadcast(-__builtin_inff());
    for (size_t i = 0; i < kVectors; ++i) {
        x[i] = scaled(task, load(scores + i * kLanes));
        maximum = select(seen(i), larger(x[i], maximum), maximum);
    }
    const float largest = largest_of(maximum) + 0.0F;
    Lanes sum = broadcast(0.0F);
    for (size_t i = 0; i < kVectors; ++i) {
        const Lanes p = rounded_to_bf16(exp(x[i] - broadcast(largest)));
        const Lanes weight = select(seen(i), p, broadcast(0.0F));
        sum = sum + weight;
        store_upper_halves(weight, group.weights[i / 2][r] + i % 2 * kLanes);
    }
    task.maximum[group.row + r] = largest;
    task.sum[group.row + r] = sum_of(sum);
}

inline void weigh_group(const AttentionBlock &task, Group &group, Next &next) {
    alignas(64) float turned[kTileRows][kPagePositions]; // [row][slot]
    for (size_t slot = 0; slot < kPagePositions; slot += kTileRows) {
        __m512i rows[kTileRows];
        for (size_t i = 0; i < kTileRows; ++i) {
            rows[i] = _mm512_load_si512(group.scores[slot + i]);
        }
        Avx512::turn(rows);
        for (size_t r = 0; r < group.count; ++r) {
            _mm512_store_si512(turned[r] + slot, rows[r]);
        }
    }
    for (size_t r = 0; r < group.count; ++r) {
        if (task.visible[group.row + r] != 0) {
            weigh(task, turned[r], r, group);
        }
        next.fetch(next.left() / (group.count - r));
    }
}

} // namespace by_slots

namespace by_rows {

// Which rows see a slot: all of them, in most blocks.
struct Everything {
    explicit Everything(const uint64_t *, size_t) {}
    Mask rows(size_t) const { return mask_of(0xFFFF); }
};
class Visible {
  public:
    Visible(const uint64_t *visible, size_t count) {
        alignas(64) uint32_t halves[2][kTileRows] = {};
        for (size_t r = 0; r < count; ++r) {
            halves[0][r] = static_cast<uint32_t>(visible[r]);
            halves[1][r] = static_cast<uint32_t>(visible[r] >> 32);
        }
        halves_[0] = _mm512_load_si512(halves[0]);
        halves_[1] = _mm512_load_si512(halves[1]);
    }
    Mask rows(size_t slot) const {
        const __m512i bit = _mm512_set1_epi32(static_cast<int32_t>(1U << slot % 32));
        return {_mm512_test_epi32_mask(halves_[slot / 32], bit)};
    }

  private:
    __m512i halves_[2];
};

// A weight as the lower half of each lane: p is not negative, so that the instruction's zeros for
// denormals and its NaN are those of C6.
[[gnu::always_inline]] inline __m512i weight_of(Lanes p, Mask seen) {
    return _mm512_maskz_cvtepu16_epi32(seen.all,
                                       reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(p.all)));
}

// Adds up sums [lane of C4][row] by the tree of C4.
[[gnu::always_inline]] inline Lanes sum_rows(Lanes (&sums)[kLanes]) {
    for (size_t half = kLanes / 2; half != 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) {
            sums[i] = sums[i] + sums[i + half];
        }
    }
    return sums[0];
}

// All rows' scores to weights, their maxima and sums, as above.
template <typename Seen>
void weigh(const AttentionBlock &task, const Seen &seen, Group &group, Next &next) {
    Lanes maximum = broadcast(-__builtin_inff());
    for (size_t slot = 0; slot < kPagePositions; ++slot) {
        const Lanes x = scaled(task, load(group.scores[slot]));
        store(x, group.scores[slot]);
        maximum = select(seen.rows(slot), larger(x, maximum), maximum);
    }
    const Lanes largest = maximum + broadcast(0.0F);

    // Words of two slots, [half of the slots][pair of slots][row].
    alignas(64) __m512i pairs[2][kTileRows];
    Lanes sums[kLanes];
    for (size_t lane = 0; lane < kLanes; lane += 2) {
        Lanes even = broadcast(0.0F), odd = broadcast(0.0F);
        for (size_t slot = lane; slot < kPagePositions; slot += kLanes) {
            const auto weight = [&](size_t of) {
                const Lanes x = load(group.scores[of]) - largest;
                return weight_of(exp(x), seen.rows(of));
            };
            const __m512i first = weight(slot);
            const __m512i second = _mm512_slli_epi32(weight(slot + 1), 16);
            even = even + Lanes{_mm512_castsi512_ps(_mm512_slli_epi32(first, 16))};
            odd = odd + Lanes{_mm512_castsi512_ps(second)};
            pairs[slot / 32][slot / 2 % kTileRows] = _mm512_or_si512(first, second);
        }
        sums[lane] = even, sums[lane + 1] = odd;
        next.fetch(next.left() / (kLanes / 2 - lane / 2));
    }
    for (size_t half = 0; half < 2; ++half) {
        Avx512::turn(pairs[half]);
        for (size_t r = 0; r < kTileRows; ++r) {
            _mm512_store_si512(group.weights[half][r], pairs[half][r]);
        }
    }

    __mmask16 some = 0; // rows that see any slot
    for (size_t r = 0; r < group.count; ++r) {
        some |= static_cast<__mmask16>((task.visible[group.row + r] != 0 ? 1U : 0U) << r);
    }
    _mm512_mask_storeu_ps(task.maximum + group.row, some, largest.all);
    _mm512_mask_storeu_ps(task.sum + group.row, some, sum_rows(sums).all);
}

inline void weigh_group(const AttentionBlock &task, Group &group, Next &next) {
    const uint64_t *visible = task.visible + group.row;
    uint64_t all = ~uint64_t{0};
    for (size_t r = 0; r < group.count; ++r) {
        all &= visible[r];
    }
    if (all == ~uint64_t{0}) {
        weigh(task, Everything(visible, group.count), group, next);
    } else {
        weigh(task, Visible(visible, group.count), group, next);
    }
}

} // namespace by_rows

// Rows from which on lanes of rows are faster, at head dimensions of 64 to 256.
inline constexpr size_t kManyRows = 9;

// A group's scores to weights, in `group.weights`; its rows' maxima, sums and, if they are wanted,
// weights.
inline void weigh(const AttentionBlock &task, Group &group, Next &next) {
    if (group.count >= kManyRows) {
        by_rows::weigh_group(task, group, next);
    } else {
        by_slots::weigh_group(task, group, next);
    }
    for (size_t r = 0; task.weights != nullptr && r < group.count; ++r) {
        if (task.visible[group.row + r] != 0) {
            uint16_t *to = task.weights + (group.row + r) * kPagePositions;
            __builtin_memcpy(to, group.weights[0][r], 64);
            __builtin_memcpy(to + 32, group.weights[1][r], 64);
        }
    }
}

} // namespace stasis::kernels::amx
