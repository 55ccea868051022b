// Products with coded weights (coded.h). Their vectors are those that VDPBF16PS takes, so a weight
// costs no transpose: its code becomes its high byte, and its low one comes beside it.
#include <algorithm>

#include "runtime/kernels/avx512bf16/kernels.h"
#include "runtime/kernels/avx512bf16/vector.h"
#include "runtime/kernels/generic/panels/product.h"

namespace stasis::kernels::avx512bf16 {

namespace {

using V = Avx512Bf16;
static_assert(kBlock == kCodedBlockTerms && V::kLanes == kCodedOutputs);
constexpr size_t kBlockVectors = kWords<V>; // of a block: even and odd, step by step

// The blocks of a strip from `begin` on, one after the other. Stands where a Strip does.
class CodedBlocks {
  public:
    static constexpr size_t kRowsTogether = V::kRows; // nothing is turned
    static constexpr size_t kAheadBytes = 8192;

    CodedBlocks(const CodedStrip &strip, size_t begin)
        : at_(strip.blocks + begin * kCodedBlockBytes), end_(strip.escapes + strip.escape_count),
          high_(_mm512_broadcast_i32x4(
              _mm_loadu_si128(reinterpret_cast<const __m128i *>(strip.high)))) {
        escape_ = std::lower_bound(
            strip.escapes, end_, begin * kCodedBlockWeights,
            [](const Escape &escape, size_t place) { return escape.place < place; });
        see_next();
    }

    // take<step>(even, odd) as Strip::block, of the block at k; those before it were taken.
    template <typename Take> [[gnu::always_inline]] inline void block(size_t k, const Take &take) {
        if (k / kBlock == escaped_) [[unlikely]] {
            alignas(64) uint16_t words[kBlockVectors][kHalves];
            unpack([&]<size_t step>(V::Words even, V::Words odd) {
                _mm512_store_si512(words[2 * step], even);
                _mm512_store_si512(words[2 * step + 1], odd);
            });
            correct(words[0], k / kBlock);
            unroll<kSteps<V>>([&]<size_t step>() {
                take.template operator()<step>(_mm512_load_si512(words[2 * step]),
                                               _mm512_load_si512(words[2 * step + 1]));
            });
        } else {
            unpack(take);
        }
        at_ += kCodedBlockBytes;
    }

    // What lies kAheadBytes further on, into the second level of caches, or `over` more.
    [[gnu::always_inline]] inline void fetch(size_t over = 0) const {
        for (size_t line = 0; line < kCodedBlockBytes; line += 64) {
            asm volatile("prefetcht1 %0" ::"m"(at_[kAheadBytes + over + line]));
        }
    }

  private:
    static constexpr size_t kHalves = 2 * V::kLanes;

    // Two vectors of weights: their low bytes, and their codes in the low bits of bytes.
    template <size_t step, typename Take>
    [[gnu::always_inline]] inline void join(V::Words low, V::Words codes, const Take &take) const {
        const V::Words high =
            _mm512_shuffle_epi8(high_, _mm512_and_si512(codes, _mm512_set1_epi8(kCodes - 1)));
        take.template operator()<step>(_mm512_unpacklo_epi8(low, high),
                                       _mm512_unpackhi_epi8(low, high));
    }

    template <typename Take> [[gnu::always_inline]] inline void unpack(const Take &take) const {
        unroll<kCodedGroups>([&]<size_t group>() {
            const uint8_t *from = at_ + group * kCodedGroupBytes;
            const V::Words codes = _mm512_loadu_si512(from);
            join<2 * group>(_mm512_loadu_si512(from + 64), codes, take);
            join<2 * group + 1>(_mm512_loadu_si512(from + 128), _mm512_srli_epi16(codes, 4), take);
        });
    }

    // Puts the escapes of a block in their places.
    [[gnu::noinline]] void correct(uint16_t *words, size_t block) {
        for (; escape_ != end_ && escape_->place / kCodedBlockWeights == block; ++escape_) {
            words[escape_->place % kCodedBlockWeights] = escape_->value;
        }
        see_next();
    }

    void see_next() { escaped_ = escape_ != end_ ? escape_->place / kCodedBlockWeights : SIZE_MAX; }

    const uint8_t *at_; // the next block
    const Escape *escape_ = nullptr, *end_;
    size_t escaped_ = 0; // the next block with escapes
    V::Words high_;      // in each quarter, the bytes of the codes
};

// Whether what lies ahead is fetched. Zen 4 reads up to three rows faster without, and five and
// more 1.5 times as fast with.
bool fetches(size_t rows) {
    return rows > 3 || read_ahead() == ReadAhead::far_and_near;
}

template <size_t rows> [[gnu::flatten]] void multiply_outputs(const CodedMatmul &task) {
    const bool fetch = fetches(rows);
    for (size_t output = 0; output < task.outputs; output += V::kLanes) {
        CodedBlocks blocks(task.w[output / V::kLanes], 0);
        sum_blocks<V, rows>(blocks, static_cast<const uint32_t *>(task.packed), task.depth,
                            task.y + output, task.y_stride,
                            smaller(V::kLanes, task.outputs - output), [&](size_t) {
                                if (fetch) {
                                    blocks.fetch();
                                }
                            });
    }
}

} // namespace

void matmul_coded(const CodedMatmul &task) {
    const auto *x = static_cast<const uint32_t *>(task.packed);
    if (task.rows <= V::kRows) {
        with_rows<V>(task.rows, [&]<size_t rows>() { multiply_outputs<rows>(task); });
    } else if (task.rows <= kBatchRows) {
        multiply_batch<V>(
            {x, task.rows, task.outputs, task.depth, task.y, task.y_stride},
            [&](size_t output) { return CodedBlocks(task.w[output / V::kLanes], 0); },
            [&](const CodedBlocks &blocks, size_t k) {
                // The next strip is read beside this one: what follows is the one behind it.
                const size_t ahead = k / kBlock * kCodedBlockBytes + CodedBlocks::kAheadBytes;
                const size_t strip = coded_strip_bytes(task.depth);
                blocks.fetch(ahead < strip ? 0 : strip);
            });
    } else {
        const auto pack = [&](size_t output, size_t count, size_t begin, size_t end,
                              uint32_t *panel) {
            pack_panel<V>(
                count, begin, end, panel,
                [&](size_t n) { return CodedBlocks(task.w[(output + n) / V::kLanes], begin); },
                [](const CodedBlocks &, size_t) {});
        };
        multiply_panels<V>(x, task.rows, task.outputs, task.depth, task.y, task.y_stride,
                           static_cast<uint32_t *>(task.scratch), pack);
    }
}

} // namespace stasis::kernels::avx512bf16
