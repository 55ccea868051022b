// Codes weights (coded.h): a block of a strip is brought into a product's order of terms, and its
// vectors are taken apart.
#pragma once

#include "runtime/kernels/generic/panels/coded_blocks.h"

namespace stasis::kernels::STASIS_TABLE {

inline constexpr size_t kExponentPairs = 128; // of exponents that differ in their last bit
inline constexpr size_t kPairCodes = 8;       // of one sign

// Pairs of exponents: kPairCodes - 1 in sequence, none of them that of zeros, and another one.
struct ExponentPairs {
    uint16_t first, other;
};

[[gnu::always_inline]] inline uint16_t pair_of(uint16_t weight) {
    return weight >> 8 & (kExponentPairs - 1);
}

// Those that most weights have, by kSample of them or all. Of pairs that the sample lacks, those
// below the others: a weight near zero is likelier than one beyond the greatest.
inline ExponentPairs choose_pairs(const CodeStrip &task) {
    constexpr size_t kSample = 2048, kSequence = kPairCodes - 1;
    const size_t step = task.outputs * task.depth / kSample + 1;
    uint32_t seen[kExponentPairs] = {};
    for (size_t row = 0; row < task.outputs; ++row) {
        for (size_t k = row % step; k < task.depth; k += step) {
            ++seen[pair_of(task.rows[row * task.depth + k])];
        }
    }
    uint32_t sum = 0, most = 0;
    uint16_t first = 1;
    for (size_t last = 1; last < kExponentPairs; ++last) {
        sum += seen[last] - (last > kSequence ? seen[last - kSequence] : 0);
        if (last >= kSequence && sum > most) {
            most = sum;
            first = static_cast<uint16_t>(last - kSequence + 1);
        }
    }
    auto other = static_cast<uint16_t>(first - 1);
    for (uint16_t pair = 0; pair < kExponentPairs; ++pair) {
        const bool in_sequence = pair >= first && pair < first + kSequence;
        if (!in_sequence && seen[pair] > seen[other]) {
            other = pair;
        }
    }
    return {first, other};
}

// Whether a pair of exponents has a code.
[[gnu::always_inline]] inline bool has_code(uint16_t pair, ExponentPairs pairs) {
    return pair == pairs.other || static_cast<uint16_t>(pair - pairs.first) < kPairCodes - 1;
}

// A vector's codes, each in a half. Returns 0 if every weight has one; others get code 0. The loop
// is the compiler's to turn into vectors.
template <typename V>
[[gnu::always_inline]] inline uint16_t find_codes(const uint16_t (&halves)[kHalves<V>],
                                                  ExponentPairs pairs,
                                                  uint16_t (&codes)[kHalves<V>]) {
    uint16_t uncoded = 0;
    for (size_t i = 0; i < kHalves<V>; ++i) {
        const uint16_t pair = pair_of(halves[i]);
        const bool coded = has_code(pair, pairs);
        const auto code =
            static_cast<uint16_t>(pair == pairs.other ? kPairCodes - 1 : pair - pairs.first);
        const auto sign = static_cast<uint16_t>(halves[i] >> 12 & kPairCodes);
        codes[i] = coded ? static_cast<uint16_t>(code | sign) : uint16_t{0};
        uncoded = static_cast<uint16_t>(uncoded | (coded ? 0 : 1));
    }
    return uncoded;
}

inline constexpr size_t kCodedVectors = kBlock / 2; // of a block of a part

// Up to kLanes rows of a strip, from `first` on, in the order that lanes are outputs.
template <typename V> class TurnedRows {
  public:
    TurnedRows(const CodeStrip &task, size_t first)
        : rows_(smaller(V::kLanes, task.outputs - first)), depth_(task.depth),
          strip_(task.rows + first * task.depth, task.depth, rows_, task.depth) {}

    // The vectors of the block at k, as V::turn_pairs leaves them.
    void block(size_t k, uint16_t (*halves)[kHalves<V>]) {
        strip_.block(k, [&]<size_t step>(typename V::Words even, typename V::Words odd) {
            if constexpr (V::kPairs == 1) {
                uint32_t words[2][V::kLanes];
                V::store(words[0], even);
                V::store(words[1], odd);
                for (size_t n = 0; n < V::kLanes; ++n) {
                    words[1][n] |= words[0][n] >> 16;
                }
                __builtin_memcpy(halves[step], words[1], sizeof words[1]);
            } else {
                V::store(halves[2 * step], even);
                V::store(halves[2 * step + 1], odd);
            }
        });
    }

    // Whether a half of a vector of the block at k is a weight.
    bool is_weight(size_t k, size_t vector, size_t half) const {
        size_t term;
        if constexpr (V::kPairs == 1) { // even term low, odd term high
            term = 2 * vector + half % 2;
        } else { // of one chain in turn, the first of two terms high
            term = vector / 2 * 4 + vector % 2 + (half % 2 == 0 ? 2 : 0);
        }
        return half / 2 < rows_ && k + term < depth_;
    }

  private:
    size_t rows_, depth_;
    Strip<V> strip_;
};

// Codes a part of a strip, the rows from `first` on, which Rows brings into order.
template <typename V, typename Rows> class Coder {
  public:
    Coder(const CodeStrip &task, ExponentPairs pairs, size_t first, size_t escape_count)
        : task_(task), pairs_(pairs), rows_(task, first),
          place_(first * blocks_in(task.depth) * kBlock), to_(task.blocks + place_ / 2 * 3),
          escape_count_(escape_count) {}

    // Returns the escapes of the strip so far.
    size_t code() {
        for (size_t k = 0; k < task_.depth; k += kBlock) {
            alignas(64) uint16_t halves[kCodedVectors][kHalves<V>];
            rows_.block(k, halves);
            for (size_t vector = 0; vector < kCodedVectors; vector += kGroupVectors) {
                code_group(halves + vector, k, vector);
            }
        }
        return escape_count_;
    }

  private:
    // A group of vectors, the first of which is `vector` of the block at k.
    void code_group(const uint16_t (*halves)[kHalves<V>], size_t k, size_t vector) {
        uint16_t codes[kGroupVectors][kHalves<V>], low[kGroupVectors][kHalves<V>];
        for (size_t i = 0; i < kGroupVectors; ++i) {
            if (find_codes<V>(halves[i], pairs_, codes[i]) != 0) [[unlikely]] {
                escape(halves[i], k, vector + i);
            }
            for (size_t half = 0; half < kHalves<V>; ++half) {
                low[i][half] = halves[i][half] & 0xFF;
            }
        }
        for (size_t i = 0; i < 2; ++i) {
            for (size_t half = 0; half < kHalves<V>; ++half) {
                codes[i][half] = static_cast<uint16_t>(codes[i][half] | codes[2 + i][half] << 4);
            }
        }
        const auto bytes = [](const uint16_t(&of)[kHalves<V>],
                              const uint16_t(&and_of)[kHalves<V>]) {
            return V::bytes(V::load(of), V::load(and_of));
        };
        V::store(to_, bytes(codes[0], codes[1]));
        V::store(to_ + kVectorBytes<V>, bytes(low[0], low[1]));
        V::store(to_ + 2 * kVectorBytes<V>, bytes(low[2], low[3]));
        to_ += 3 * kVectorBytes<V>;
    }

    // Those of a vector's weights that have no code.
    [[gnu::noinline]] void escape(const uint16_t (&halves)[kHalves<V>], size_t k, size_t vector) {
        for (size_t half = 0; half < kHalves<V>; ++half) {
            const bool coded = has_code(pair_of(halves[half]), pairs_);
            if (coded || !rows_.is_weight(k, vector, half)) {
                continue;
            }
            if (escape_count_ < task_.escapes_max) {
                const size_t place = place_ + k * V::kLanes + vector * kHalves<V> + half;
                task_.escapes[escape_count_] = {static_cast<uint32_t>(place), halves[half]};
            }
            ++escape_count_;
        }
    }

    const CodeStrip &task_;
    ExponentPairs pairs_;
    Rows rows_;
    size_t place_; // of the first half
    uint8_t *to_;
    size_t escape_count_;
};

template <typename V, typename Rows = TurnedRows<V>> Coded code_strip(const CodeStrip &task) {
    const ExponentPairs pairs = choose_pairs(task);
    Coded coded{};
    for (size_t first = 0; first < task.outputs; first += V::kLanes) {
        coded.escape_count = Coder<V, Rows>(task, pairs, first, coded.escape_count).code();
    }
    for (size_t code = 0; code < kPairCodes; ++code) {
        const size_t pair = code < kPairCodes - 1 ? pairs.first + code : pairs.other;
        coded.high[code] = static_cast<uint8_t>(pair);
        coded.high[code + kPairCodes] = static_cast<uint8_t>(pair | 0x80);
    }
    return coded;
}

} // namespace stasis::kernels::STASIS_TABLE
