// Codes weights (coded.h): a block of a strip is turned as a product turns it, and its vectors are
// taken apart.
#include "runtime/kernels/avx512bf16/kernels.h"
#include "runtime/kernels/avx512bf16/vector.h"
#include "runtime/kernels/generic/panels/strip.h"

namespace stasis::kernels::avx512bf16 {

namespace {

using V = Avx512Bf16;
constexpr size_t kPairs = 128;   // of exponents that differ in their last bit
constexpr size_t kPairCodes = 8; // of one sign

// Pairs of exponents: kPairCodes - 1 in sequence, none of them that of zeros, and another one.
struct Pairs {
    unsigned first, other;
};

// Those that most weights have, by kSample of them or all. Of pairs that the sample lacks, those
// below the others: a weight near zero is likelier than one beyond the greatest.
Pairs choose_pairs(const CodeStrip &task) {
    constexpr size_t kSample = 2048, kSequence = kPairCodes - 1;
    const size_t step = task.outputs * task.depth / kSample + 1;
    uint32_t seen[kPairs] = {};
    for (size_t row = 0; row < task.outputs; ++row) {
        for (size_t k = row % step; k < task.depth; k += step) {
            ++seen[task.rows[row * task.depth + k] >> 8 & (kPairs - 1)];
        }
    }
    uint32_t sum = 0, most = 0;
    unsigned first = 1;
    for (unsigned last = 1; last < kPairs; ++last) {
        sum += seen[last] - (last > kSequence ? seen[last - kSequence] : 0);
        if (last >= kSequence && sum > most) {
            most = sum;
            first = last - kSequence + 1;
        }
    }
    unsigned other = first - 1;
    for (unsigned pair = 0; pair < kPairs; ++pair) {
        const bool coded = pair >= first && pair < first + kSequence;
        if (!coded && seen[pair] > seen[other]) {
            other = pair;
        }
    }
    return {first, other};
}

class Coder {
  public:
    Coder(const CodeStrip &task, Pairs pairs)
        : task_(task), first_(_mm512_set1_epi16(static_cast<short>(pairs.first))),
          other_(_mm512_set1_epi16(static_cast<short>(pairs.other))) {}

    // The four vectors of a group, the first of which has the weights from `place` on. exists(i):
    // which halves of vector i are weights.
    template <typename Exists>
    void group(const V::Words *vectors, uint32_t place, const Exists &exists, uint8_t *to) {
        V::Words codes[4], low[4];
        unroll<4>([&]<size_t i>() {
            const V::Words weights = vectors[i];
            low[i] = _mm512_and_si512(weights, _mm512_set1_epi16(0xFF));
            const V::Words pair =
                _mm512_and_si512(_mm512_srli_epi16(weights, 8), _mm512_set1_epi16(kPairs - 1));
            const V::Words at = _mm512_sub_epi16(pair, first_);
            const V::Words last = _mm512_set1_epi16(kPairCodes - 1);
            const __mmask32 in_sequence = _mm512_cmplt_epu16_mask(at, last);
            const __mmask32 other = _mm512_cmpeq_epi16_mask(pair, other_);
            const V::Words code = _mm512_mask_mov_epi16(at, other, last);
            const V::Words sign =
                _mm512_and_si512(_mm512_srli_epi16(weights, 12), _mm512_set1_epi16(kPairCodes));
            const __mmask32 coded = in_sequence | other;
            codes[i] = _mm512_maskz_mov_epi16(coded, _mm512_or_si512(code, sign));
            if (coded != UINT32_MAX) [[unlikely]] {
                escape(weights, ~coded & exists(i), place + static_cast<uint32_t>(i) * kHalves);
            }
        });
        const V::Words first = _mm512_packus_epi16(codes[0], codes[1]);
        const V::Words second = _mm512_packus_epi16(codes[2], codes[3]);
        _mm512_storeu_si512(to, _mm512_or_si512(first, _mm512_slli_epi16(second, 4)));
        _mm512_storeu_si512(to + 64, _mm512_packus_epi16(low[0], low[1]));
        _mm512_storeu_si512(to + 128, _mm512_packus_epi16(low[2], low[3]));
    }

    size_t escape_count() const { return escape_count_; }

  private:
    static constexpr uint32_t kHalves = 2 * V::kLanes;

    [[gnu::noinline]] void escape(V::Words weights, uint32_t escaped, uint32_t place) {
        alignas(64) uint16_t values[kHalves];
        _mm512_store_si512(values, weights);
        for (; escaped != 0; escaped &= escaped - 1) {
            const auto half = static_cast<uint32_t>(__builtin_ctz(escaped));
            if (escape_count_ < task_.escapes_max) {
                task_.escapes[escape_count_] = {place + half, values[half]};
            }
            ++escape_count_;
        }
    }

    const CodeStrip &task_;
    V::Words first_, other_;
    size_t escape_count_ = 0;
};

// Which halves of a block's vector are weights: those of the outputs, of terms within `left`.
__mmask32 existing(size_t outputs, size_t left, size_t vector) {
    const auto halves = static_cast<__mmask32>((uint64_t{1} << 2 * outputs) - 1);
    const size_t term = vector / 2 * 4 + vector % 2; // of the high halves
    const __mmask32 high = term < left ? 0xAAAAAAAAU : 0, low = term + 2 < left ? 0x55555555U : 0;
    return halves & (high | low);
}

} // namespace

Coded code_strip(const CodeStrip &task) {
    const Pairs pairs = choose_pairs(task);
    Coder coder(task, pairs);
    Strip<V> strip(task.rows, task.depth, task.outputs, task.depth);
    uint8_t *to = task.blocks;
    uint32_t place = 0;
    for (size_t k = 0; k < task.depth; k += kBlock) {
        V::Words vectors[kWords<V>];
        strip.block(k, [&]<size_t step>(V::Words even, V::Words odd) {
            vectors[2 * step] = even;
            vectors[2 * step + 1] = odd;
        });
        for (size_t group = 0; group < kCodedGroups; ++group, to += kCodedGroupBytes) {
            const auto exists = [&](size_t i) {
                return existing(task.outputs, task.depth - k, 4 * group + i);
            };
            coder.group(vectors + 4 * group, place, exists, to);
            place += kCodedBlockWeights / kCodedGroups;
        }
    }
    Coded coded{{}, coder.escape_count()};
    for (size_t code = 0; code < kPairCodes; ++code) {
        const size_t pair = code < kPairCodes - 1 ? pairs.first + code : pairs.other;
        coded.high[code] = static_cast<uint8_t>(pair);
        coded.high[code + kPairCodes] = static_cast<uint8_t>(pair | 0x80);
    }
    return coded;
}

} // namespace stasis::kernels::avx512bf16
