// kLanes rows of a bf16 matrix side by side, read block by block (C1) and turned so that lanes are
// rows. Reads nothing outside the rows; what lies beyond their depth is +0.
#pragma once

#include "runtime/kernels/panels/unroll.h"

namespace stasis::kernels::STASIS_TABLE {

inline constexpr size_t kBlock = 32; // terms in a block of the rule

inline size_t blocks_in(size_t depth) {
    return (depth + kBlock - 1) / kBlock;
}

inline size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

// Steps of one chain of a block, and words that a row has of a block when packed: both chains.
template <typename V> inline constexpr size_t kSteps = kBlock / 2 / V::kPairs;
template <typename V> inline constexpr size_t kWords = 2 * kSteps<V>;

template <typename V> class Strip {
  public:
    // Of fewer rows than lanes, the last one fills the lanes that are left.
    Strip(const uint16_t *first, size_t stride, size_t count, size_t depth) : depth_(depth) {
        for (size_t n = 0; n < V::kLanes; ++n) {
            row_[n] = first + smaller(n, count - 1) * stride;
        }
    }

    const uint16_t *row(size_t n) const { return row_[n]; }

    // take<step>(even, odd) for every step of the block at k: words of the even chain and of the
    // odd one, lane n of row n.
    template <typename Take> [[gnu::always_inline]] inline void block(size_t k, const Take &take) {
        if (k + kBlock > depth_) [[unlikely]] {
            k = fill_up(k);
        }
        constexpr size_t kParts = kBlock / 2 / V::kLanes;
        unroll<kParts>([&]<size_t part>() {
            typename V::Words pairs[V::kLanes];
            unroll<V::kLanes>(
                [&]<size_t n>() { pairs[n] = V::load(row_[n] + k + part * 2 * V::kLanes); });
            V::turn(pairs);
            constexpr size_t kPartSteps = kSteps<V> / kParts;
            unroll<kPartSteps>([&]<size_t i>() {
                take.template operator()<part * kPartSteps + i>(V::even(pairs + i * V::kPairs),
                                                                V::odd(pairs + i * V::kPairs));
            });
        });
    }

  private:
    // The last block, completed with +0, takes the rows' place.
    [[gnu::noinline]] size_t fill_up(size_t k) {
        for (size_t n = 0; n < V::kLanes; ++n) {
            for (size_t i = 0; i < kBlock; ++i) {
                last_[n][i] = k + i < depth_ ? row_[n][k + i] : uint16_t{0};
            }
            row_[n] = last_[n];
        }
        return 0;
    }

    const uint16_t *row_[V::kLanes];
    size_t depth_;
    uint16_t last_[V::kLanes][kBlock];
};

} // namespace stasis::kernels::STASIS_TABLE
