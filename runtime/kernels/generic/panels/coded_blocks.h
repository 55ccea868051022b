// Coded weights as vectors (coded.h), which are those that a product turns weights into, so they
// cost no transpose: a code becomes a high byte, and the low one comes beside it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/kernels/generic/panels/strip.h"
#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_TABLE {

static_assert(kBlock == kCodedBlockTerms);

// Of a part of a strip, kLanes outputs: the halves of a vector and of a block, and the bytes of a
// coded block and of a vector.
template <typename V> inline constexpr size_t kHalves = 2 * V::kLanes;
template <typename V> inline constexpr size_t kBlockHalves = V::kLanes *kBlock;
template <typename V> inline constexpr size_t kCodedBytes = kBlockHalves<V> / 2 * 3;
template <typename V> inline constexpr size_t kVectorBytes = V::kLanes * sizeof(uint32_t);
inline constexpr size_t kGroupVectors = 4;

// The blocks of kLanes outputs of a strip, from `begin` on, one after the other. Stands where a
// Strip does.
template <typename V> class CodedBlocks {
    using Words = typename V::Words;

  public:
    static constexpr size_t kRowsTogether = V::kCodedRows; // nothing is turned
    static constexpr size_t kAheadBytes = 8192;

    // `output` of the matrix is the first of them.
    CodedBlocks(const CodedMatmul &task, size_t output, size_t begin) {
        const CodedStrip &strip = task.w[output / kCodedOutputs];
        first_ = output % kCodedOutputs / V::kLanes * blocks_in(task.depth);
        at_ = strip.blocks + (first_ + begin) * kCodedBytes<V>;
        high_ = V::each_16(strip.high);
        end_ = strip.escapes + strip.escape_count;
        escape_ = std::lower_bound(
            strip.escapes, end_, (first_ + begin) * kBlockHalves<V>,
            [](const Escape &escape, size_t place) { return escape.place < place; });
        see_next();
    }

    // take<step>(even, odd) as Strip::block, of the block at k; those before it were taken.
    template <typename Take> [[gnu::always_inline]] inline void block(size_t k, const Take &take) {
        if (has_escapes(k)) [[unlikely]] {
            alignas(64) uint16_t halves[kBlockHalves<V>];
            store(k, halves);
            unroll<kSteps<V>>([&]<size_t step>() {
                Words words[V::kPairs];
                unroll<V::kPairs>([&]<size_t i>() {
                    words[i] = V::load(halves + (step * V::kPairs + i) * kHalves<V>);
                });
                take.template operator()<step>(V::even(words), V::odd(words));
            });
        } else {
            constexpr size_t kGroupSteps = kGroupVectors / V::kPairs;
            unroll<kGroups>([&]<size_t group>() {
                Words words[kGroupVectors];
                unpack<group>(words);
                unroll<kGroupSteps>([&]<size_t i>() {
                    const Words *of_step = words + i * V::kPairs;
                    take.template operator()<group * kGroupSteps + i>(V::even(of_step),
                                                                      V::odd(of_step));
                });
            });
            at_ += kCodedBytes<V>;
        }
    }

    // The vectors of the block at k, one after the other; those before it were taken.
    [[gnu::always_inline]] inline void store(size_t k, uint16_t *halves) {
        unroll<kGroups>([&]<size_t group>() {
            Words words[kGroupVectors];
            unpack<group>(words);
            unroll<kGroupVectors>([&]<size_t i>() {
                V::store(halves + (group * kGroupVectors + i) * kHalves<V>, words[i]);
            });
        });
        if (has_escapes(k)) [[unlikely]] {
            correct(halves);
        }
        at_ += kCodedBytes<V>;
    }

    // What lies `ahead` bytes further on, into the second level of caches.
    [[gnu::always_inline]] inline void fetch(size_t ahead = kAheadBytes) const {
        for (size_t line = 0; line < kCodedBytes<V>; line += 64) {
            asm volatile("prefetcht1 %0" ::"m"(at_[ahead + line]));
        }
    }

  private:
    static constexpr size_t kGroups = kBlockHalves<V> / kHalves<V> / kGroupVectors;

    bool has_escapes(size_t k) const { return first_ + k / kBlock == escaped_; }

    template <size_t group>
    [[gnu::always_inline]] inline void unpack(Words (&words)[kGroupVectors]) const {
        const uint8_t *from = at_ + group * 3 * kVectorBytes<V>;
        const Words codes = V::load(from);
        const Words low[] = {V::load(from + kVectorBytes<V>), V::load(from + 2 * kVectorBytes<V>)};
        const Words high[] = {V::look_up(high_, codes), V::look_up(high_, V::high_codes(codes))};
        unroll<2>([&]<size_t i>() {
            words[2 * i] = V::first_bytes(low[i], high[i]);
            words[2 * i + 1] = V::last_bytes(low[i], high[i]);
        });
    }

    // Puts the escapes of the block that has the next ones in their places.
    [[gnu::noinline]] void correct(uint16_t *halves) {
        const size_t block = escaped_;
        for (; escape_ != end_ && escape_->place / kBlockHalves<V> == block; ++escape_) {
            halves[escape_->place % kBlockHalves<V>] = escape_->value;
        }
        see_next();
    }

    void see_next() { escaped_ = escape_ != end_ ? escape_->place / kBlockHalves<V> : SIZE_MAX; }

    size_t first_;      // block of these outputs, as the strip counts them
    const uint8_t *at_; // the next block
    const Escape *escape_, *end_;
    size_t escaped_; // the next block with escapes
    Words high_;     // the bytes of the codes
};

} // namespace stasis::kernels::STASIS_TABLE
