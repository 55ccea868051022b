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

    // u of four bits, where they stand for other numbers.
    struct alignas(16) Sixteen {
        uint8_t of[16];
    };
    static constexpr Sixteen kTable = [] {
        Sixteen table{};
        for (size_t i = 0; kKind.values != nullptr && i < 16; ++i) {
            table.of[i] = static_cast<uint8_t>(kKind.values[i] + (kShift >= 0 ? 1 << kShift : 0));
        }
        return table;
    }();

    const uint8_t *words, *rest; // of the first lane

    WeightBlock(const uint8_t *block, size_t part)
        : words(block + part * V::kLanes * 4),
          rest(block + kShape.words * kStripOutputs * 4 + part * V::kLanes * kShape.rest_bytes()) {}

    // Word i of the published block.
    [[gnu::always_inline]] inline Ints word(size_t i) const {
        return (Ints)V::load(words + strip_word(type, i) * kStripOutputs * 4);
    }

    // The integers u of elements 4 i to 4 i + 3; in_place: times 2^bit, of types without other
    // bits.
    template <size_t i, bool in_place = false>
    [[gnu::always_inline]] inline Words integers() const {
        constexpr Place kPlace = place_of(type, static_cast<int>(i));
        constexpr int kBytes = 0x01010101;
        Ints u = word(kPlace.word);
        if constexpr (in_place) {
            static_assert(kPlace.high_mask == 0 && kKind.values == nullptr);
            constexpr unsigned kBits = ((1U << kKind.low_bits) - 1) << kPlace.bit;
            return (Words)(u & static_cast<int>(kBits * 0x01010101U));
        }
        if constexpr (kKind.low_bits == 8) {
            u = kFlip ? u ^ static_cast<int32_t>(0x80808080) : u;
        } else {
            u = (u >> kPlace.bit) & ((1 << kKind.low_bits) - 1) * kBytes;
        }
        if constexpr (kKind.values != nullptr) {
            return V::look_up(kTable.of, (Words)u);
        }
        if constexpr (kPlace.high_mask != 0) {
            constexpr int kUp = __builtin_ctz(kPlace.high_mask) - kPlace.high_bit;
            const Ints high = word(kPlace.high_word);
            u |= (kUp > 0 ? high << (kUp & 7) : high >> (-kUp & 7)) & kPlace.high_mask * kBytes;
        }
        return (Words)u;
    }
};

// The scales of a block.
template <typename V, Quant type> struct BlockScales {
    using Ints = typename V::Ints;
    using Shorts [[gnu::vector_size(sizeof(Ints))]] = int16_t;
    using Words = typename V::Words;
    static constexpr Kind kKind = kind_of(type);

    Ints scale[kKind.parts == 0 ? 1 : kKind.parts];
    // The same, two to a word, of parts 0 and 2, 1 and 3, 4 and 6, ... (BlockSums).
    Ints scale_pair[kKind.parts == 0 ? 1 : kKind.parts / 2];
    // Weights of the activations' sums: minima mn, or sc where u is shifted.
    Ints pair[kKind.parts == 0 ? 1 : kKind.parts / 2];
    typename V::Floats d, m; // m with its sign

    [[gnu::always_inline]] inline explicit BlockScales(const WeightBlock<V, type> &block) {
        if constexpr (kKind.has_minimum) {
            const Ints both = block.word(type == Quant::q2_k ? 20 : 0);
            const Ints upper = both >> 16;
            d = V::lower_f16((Words)both);
            m = V::lower_f16((Words)(kKind.parts == 0 ? upper : upper ^ 0x8000));
        } else if constexpr (type == Quant::mxfp4) {
            d = V::load_e8m0(block.rest);
        } else if constexpr (type == Quant::iq4_xs) {
            d = V::lower_f16((Words)block.word(0));
        } else {
            d = V::load_f16(block.rest);
        }
        if constexpr (type == Quant::iq4_xs) {
            split_bits(block.word(0) >> 16, block.word(1));
        } else if constexpr (type == Quant::q2_k) {
            unroll<4>([&]<size_t i>() {
                four_scales<i>(block.word(i) & kFourBits);
                pair_of_bytes<i>(pair, (block.word(i) >> 4) & kFourBits);
            });
        } else if constexpr (type == Quant::q3_k) {
            packed_bits(block.word(24), block.word(25), block.word(26));
        } else if constexpr (kKind.parts == 8) {
            six_bits(block.word(1), block.word(2), block.word(3));
        } else if constexpr (kKind.parts == 16) {
            unroll<4>([&]<size_t i>() { signed_bytes<i>(block.word(48 + i)); });
        }
    }

    static constexpr int kFourBits = 0x0F0F0F0F, kLowBytes = 0x00FF00FF;

    // The i-th four bytes, which are not negative.
    template <size_t i> [[gnu::always_inline]] inline void four_scales(Ints bytes) {
        unroll<4>([&]<size_t j>() { scale[4 * i + j] = (bytes >> 8 * j) & 0xFF; });
        pair_of_bytes<i>(scale_pair, bytes);
    }
    template <size_t i>
    [[gnu::always_inline]] static inline void pair_of_bytes(Ints *pairs, Ints bytes) {
        pairs[2 * i] = bytes & kLowBytes;
        pairs[2 * i + 1] = (bytes >> 8) & kLowBytes;
    }

    // Of Q4_K and Q5_K: the bytes 0 to 3, 4 to 7 and 8 to 11 of their scales.
    [[gnu::always_inline]] inline void six_bits(Ints a, Ints b, Ints c) {
        const Ints scales[2] = {a & 0x3F3F3F3F, (c & kFourBits) | ((a >> 2) & 0x30303030)};
        const Ints minima[2] = {b & 0x3F3F3F3F, ((c >> 4) & kFourBits) | ((b >> 2) & 0x30303030)};
        unroll<2>([&]<size_t half>() {
            four_scales<half>(scales[half]);
            pair_of_bytes<half>(pair, minima[half]);
        });
    }

    // Of Q6_K: the i-th four.
    template <size_t i> [[gnu::always_inline]] inline void signed_bytes(Ints four) {
        unroll<4>([&]<size_t j>() { scale[4 * i + j] = (four << (24 - 8 * j)) >> 24; });
        pair_up<2 * i>(), pair_up<2 * i + 1>();
    }

    // Of Q3_K: low four bits of scales 0 to 3 and 8 to 11, of 4 to 7 and 12 to 15, and the upper
    // two of all; a scale is 32 more than sc.
    [[gnu::always_inline]] inline void packed_bits(Ints a, Ints b, Ints c) {
        const Ints fours[4] = {(a & kFourBits) | ((c << 4) & 0x30303030),
                               (b & kFourBits) | ((c << 2) & 0x30303030),
                               ((a >> 4) & kFourBits) | (c & 0x30303030),
                               ((b >> 4) & kFourBits) | ((c >> 2) & 0x30303030)};
        unroll<4>([&]<size_t i>() {
            unroll<4>([&]<size_t j>() { scale[4 * i + j] = ((fours[i] >> 8 * j) & 63) - 32; });
            pair_of_bytes<i>(pair, fours[i]);
        });
        unroll<8>([&]<size_t i>() {
            pair[i] = scale_pair[i] = (Ints)((Shorts)pair[i] - static_cast<int16_t>(32));
        });
    }

    // Of IQ4_XS: upper two bits and lower four of each scale, which is 32 more than sc.
    [[gnu::always_inline]] inline void split_bits(Ints upper, Ints lower) {
        unroll<8>([&]<size_t j>() {
            scale[j] = (((lower >> 4 * j) & 15) | (((upper >> 2 * j) & 3) << 4)) - 32;
        });
        unroll<4>([&]<size_t j>() { pair_up<j>(); });
    }

    template <size_t j> [[gnu::always_inline]] inline void pair_up() {
        constexpr size_t kFirst = j / 2 * 4 + j % 2;
        pair[j] = (scale[kFirst] & 0xFFFF) | (scale[kFirst + 2] << 16);
    }
};

} // namespace stasis::kernels::STASIS_TABLE
