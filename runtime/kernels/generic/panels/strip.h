// Rows of a bf16 matrix side by side, read block by block (C1) and turned so that lanes are rows.
// Reads nothing outside the rows; what lies beyond their depth is +0.
#pragma once

#include "runtime/kernels/generic/panels/unroll.h"
#include "runtime/kernels/generic/rule.h"

namespace stasis::kernels::STASIS_TABLE {

// Steps of one chain of a block, and words that a row has of a block when packed: both chains.
template <typename V> inline constexpr size_t kSteps = kBlock / 2 / V::kPairs;
template <typename V> inline constexpr size_t kWords = 2 * kSteps<V>;

// `rows` rows; lanes beyond them hold a copy of the last one.
template <typename V, size_t rows = V::kLanes> class Strip {
  public:
    // Rows whose sums of both chains stay in registers beside the turning of a block.
    static constexpr size_t kRowsTogether = 5;

    // Only `count` of the rows exist; the others are +0.
    Strip(const uint16_t *first, size_t stride, size_t count, size_t depth)
        : first_(first), stride_(stride), count_(count), depth_(depth) {}

    // take<step>(even, odd) for every step of the block at k: words of the even chain and of the
    // odd one, lane n of row n.
    template <typename Take> [[gnu::always_inline]] inline void block(size_t k, const Take &take) {
        const uint16_t *from = first_ + k;
        size_t stride = stride_;
        uint16_t filled[rows][kBlock];
        if (k + kBlock > depth_ || count_ < rows) [[unlikely]] {
            fill(k, filled);
            from = filled[0];
            stride = kBlock;
        }
        constexpr size_t kParts = kBlock / 2 / V::kLanes;
        unroll<kParts>([&]<size_t part>() {
            typename V::Words pairs[V::kLanes];
            unroll<V::kLanes>([&]<size_t n>() {
                constexpr size_t row = n < rows ? n : rows - 1;
                pairs[n] = V::load(from + row * stride + part * 2 * V::kLanes);
            });
            V::turn_pairs(pairs);
            constexpr size_t kPartSteps = kSteps<V> / kParts;
            unroll<kPartSteps>([&]<size_t i>() {
                take.template operator()<part * kPartSteps + i>(V::even(pairs + i * V::kPairs),
                                                                V::odd(pairs + i * V::kPairs));
            });
        });
    }

    // Into cache `level`: of each row, what lies `offset` elements behind its begin. It need not be
    // part of the matrix.
    template <int level> [[gnu::always_inline]] inline void prefetch(size_t offset) const {
        auto at = reinterpret_cast<uintptr_t>(first_) + offset * sizeof(uint16_t);
        for (size_t n = 0; n < rows; ++n) {
            __builtin_prefetch(reinterpret_cast<const void *>(at), 0, level);
            at += stride_ * sizeof(uint16_t);
        }
    }

  private:
    // The block at k, completed with +0.
    [[gnu::noinline]] void fill(size_t k, uint16_t (&filled)[rows][kBlock]) const {
        for (size_t n = 0; n < rows; ++n) {
            for (size_t i = 0; i < kBlock; ++i) {
                const bool exists = n < count_ && k + i < depth_;
                filled[n][i] = exists ? first_[n * stride_ + k + i] : uint16_t{0};
            }
        }
    }

    const uint16_t *first_;
    size_t stride_, count_, depth_;
};

// Writes the block at k of a strip: of every chain and step kLanes words, `width` words apart.
template <typename V, typename Blocks>
[[gnu::always_inline]] inline void store_block(Blocks &strip, size_t k, size_t width,
                                               uint32_t *to) {
    strip.block(k, [&]<size_t step>(auto even, auto odd) {
        V::store(to + step * width, even);
        V::store(to + (kSteps<V> + step) * width, odd);
    });
}

} // namespace stasis::kernels::STASIS_TABLE
