// Codes weights (coded.h): a block of a strip is turned as a product turns it, and its vectors are
// taken apart.
#include "runtime/kernels/avx512bf16/kernels.h"
#include "runtime/kernels/avx512bf16/vector.h"
#include "runtime/kernels/generic/panels/strip.h"

namespace stasis::kernels::avx512bf16 {

namespace {

using V = Avx512Bf16;
constexpr unsigned kExponents = 256;

// Returns the first of the kCodes consecutive exponents that most weights have, by kSample of them
// or all. Exponent 0 has a code of its own.
unsigned choose_exponent(const CodeStrip &task) {
    constexpr size_t kSample = 2048;
    const size_t step = task.outputs * task.depth / kSample + 1;
    uint32_t seen[kExponents] = {};
    for (size_t row = 0; row < task.outputs; ++row) {
        for (size_t k = row % step; k < task.depth; k += step) {
            ++seen[task.rows[row * task.depth + k] >> 7 & (kExponents - 1)];
        }
    }
    uint32_t sum = 0, most = 0;
    unsigned best = 1;
    for (unsigned last = 1; last < kExponents; ++last) {
        sum += seen[last] - (last > kCodes ? seen[last - kCodes] : 0);
        if (last >= kCodes && sum > most) {
            most = sum;
            best = last - kCodes + 1;
        }
    }
    return best;
}

class Coder {
  public:
    Coder(const CodeStrip &task, unsigned exponent)
        : task_(task), first_(_mm512_set1_epi16(static_cast<short>(exponent))) {}

    // The four vectors of a group, the first of which has the weights from `place` on.
    void group(const V::Words *vectors, uint32_t place, uint8_t *to) {
        V::Words codes = _mm512_setzero_si512(), bytes[4];
        unroll<4>([&]<size_t i>() {
            const V::Words weights = vectors[i];
            const V::Words own =
                _mm512_and_si512(_mm512_srli_epi16(weights, 7), _mm512_set1_epi16(0xFF));
            const V::Words code = _mm512_sub_epi16(own, first_);
            const V::Words none = _mm512_set1_epi16(kCodes);
            const __mmask32 uncoded = _mm512_cmpge_epu16_mask(code, none);
            codes = _mm512_or_si512(
                codes, _mm512_slli_epi16(_mm512_mask_mov_epi16(code, uncoded, none), 4 * i));
            const V::Words sign =
                _mm512_and_si512(_mm512_srli_epi16(weights, 8), _mm512_set1_epi16(0x80));
            bytes[i] = _mm512_or_si512(sign, _mm512_and_si512(weights, _mm512_set1_epi16(0x7F)));
            const __mmask32 escaped = _mm512_mask_test_epi16_mask(uncoded, own, own);
            if (escaped != 0) [[unlikely]] {
                escape(weights, escaped, place + static_cast<uint32_t>(i) * kHalves);
            }
        });
        _mm512_storeu_si512(to, codes);
        _mm512_storeu_si512(to + 64, _mm512_packus_epi16(bytes[0], bytes[1]));
        _mm512_storeu_si512(to + 128, _mm512_packus_epi16(bytes[2], bytes[3]));
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
    V::Words first_;
    size_t escape_count_ = 0;
};

} // namespace

Coded code_strip(const CodeStrip &task) {
    const unsigned exponent = choose_exponent(task);
    Coder coder(task, exponent);
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
            coder.group(vectors + 4 * group, place, to);
            place += kCodedBlockWeights / kCodedGroups;
        }
    }
    return {static_cast<uint16_t>(exponent), coder.escape_count()};
}

} // namespace stasis::kernels::avx512bf16
