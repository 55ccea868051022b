// A block of a strip of integer weights (strips.h), for kLanes of its outputs: integers as words of
// four, scales as vectors. Lanes are outputs.
#pragma once

#include "runtime/kernels/generic/blocks/kind.h"
#include "runtime/kernels/generic/panels/unroll.h"

namespace stasis::kernels::STASIS_TABLE {

template <typename V, Quant type> struct WeightBlock {
    using Words = typename V::Words;
    using Ints = typename V::Ints;
    static constexpr Kind kKind = kind_of(type);
    static constexpr StripBlock kShape = strip_block(type);
    // An int8 is kept as u + 128 where V wants it unsigned.
    static constexpr bool kFlip = kKind.has_sign && V::kUnsigned;
    static constexpr int kShift = kFlip ? 7 : kKind.shift; // n = u - 2^kShift

    const uint8_t *words, *halves; // of the first lane

    WeightBlock(const uint8_t *block, size_t part)
        : words(block + part * V::kLanes * 4),
          halves(block + kShape.words * kStripOutputs * 4 + part * V::kLanes * 2) {}

    [[gnu::always_inline]] inline Ints word(size_t i) const {
        return (Ints)V::load(words + i * kStripOutputs * 4);
    }

    // The integers u of elements 4 i to 4 i + 3.
    template <size_t i> [[gnu::always_inline]] inline Words integers() const {
        constexpr Place kPlace = place_of(type, i);
        Ints u = word(kPlace.word);
        if constexpr (kKind.has_sign) {
            return (Words)(kFlip ? u ^ static_cast<int32_t>(0x80808080) : u);
        }
        u = (kPlace.upper ? u >> 4 : u) & 0x0F0F0F0F; // nibbles
        if constexpr (kPlace.high_mask != 0) {
            constexpr int kUp = 4 - kPlace.high_bit;
            const Ints high = word(kPlace.high_word);
            u |= (kUp > 0 ? high << (kUp & 7) : high >> (-kUp & 7)) & kPlace.high_mask * 0x01010101;
        }
        return (Words)u;
    }
};

// The scales of a block.
template <typename V, Quant type> struct BlockScales {
    using Ints = typename V::Ints;
    using Words = typename V::Words;
    static constexpr Kind kKind = kind_of(type);

    Ints scale[kKind.parts == 0 ? 1 : kKind.parts];
    // Weights of the activations' sums (BlockSums), two to a word: minima mn, or sc where u is
    // shifted.
    Ints pair[kKind.parts == 0 ? 1 : kKind.parts / 2];
    typename V::Floats d, m; // m with its sign

    [[gnu::always_inline]] inline explicit BlockScales(const WeightBlock<V, type> &block) {
        if constexpr (kKind.has_minimum) {
            const Ints both = block.word(0);
            const Ints upper = both >> 16;
            d = V::lower_f16((Words)both);
            m = V::lower_f16((Words)(kKind.parts == 0 ? upper : upper ^ 0x8000));
        } else {
            d = V::load_f16(block.halves);
        }
        if constexpr (kKind.parts == 8) {
            six_bits(block.word(1), block.word(2), block.word(3));
        } else if constexpr (kKind.parts == 16) {
            unroll<4>([&]<size_t i>() { signed_bytes<i>(block.word(48 + i)); });
        }
    }

    // Of Q4_K and Q5_K: the bytes 0 to 3, 4 to 7 and 8 to 11 of their scales.
    [[gnu::always_inline]] inline void six_bits(Ints a, Ints b, Ints c) {
        const Ints scales[2] = {a & 0x3F3F3F3F, (c & 0x0F0F0F0F) | ((a >> 2) & 0x30303030)};
        const Ints minima[2] = {b & 0x3F3F3F3F, ((c >> 4) & 0x0F0F0F0F) | ((b >> 2) & 0x30303030)};
        unroll<2>([&]<size_t half>() {
            unroll<4>([&]<size_t j>() { scale[4 * half + j] = (scales[half] >> 8 * j) & 63; });
            const Ints mn = minima[half];
            pair[2 * half] = (mn & 63) | ((mn << 8) & 63 << 16);
            pair[2 * half + 1] = ((mn >> 16) & 63) | ((mn >> 8) & 63 << 16);
        });
    }

    // Of Q6_K: the i-th four.
    template <size_t i> [[gnu::always_inline]] inline void signed_bytes(Ints four) {
        unroll<4>([&]<size_t j>() { scale[4 * i + j] = (four << (24 - 8 * j)) >> 24; });
        pair[2 * i] = (scale[4 * i] & 0xFFFF) | (scale[4 * i + 1] << 16);
        pair[2 * i + 1] = (scale[4 * i + 2] & 0xFFFF) | (scale[4 * i + 3] << 16);
    }
};

} // namespace stasis::kernels::STASIS_TABLE
