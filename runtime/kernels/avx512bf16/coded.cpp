// Products with coded weights (coded.h). Their vectors are those that VDPBF16PS takes, so a weight
// costs no transpose: its code becomes an exponent by one permutation of a table, and its sign and
// fraction come beside it.
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
          exponents_(exponents(strip.exponent)) {
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

    // The exponents of codes, in their place in bf16. A code is looked up by five bits, the last of
    // which belongs to its neighbour.
    static V::Words exponents(unsigned first) {
        alignas(64) uint16_t table[kHalves];
        for (unsigned i = 0; i < kHalves; ++i) {
            const unsigned code = i % (kCodes + 1);
            table[i] = static_cast<uint16_t>(code == kCodes ? 0 : (first + code) << 7);
        }
        return _mm512_load_si512(table);
    }

    // A vector of weights, from words whose low bits are its codes, and from words whose two bytes
    // both are its sign and fraction.
    [[gnu::always_inline]] inline V::Words word(V::Words codes, V::Words doubled) const {
        const V::Words kept = _mm512_set1_epi16(static_cast<short>(0x807F));
        constexpr int kFirstAndSecondOrThird = 0xEA; // (a & b) | c
        return _mm512_ternarylogic_epi32(doubled, kept, _mm512_permutexvar_epi16(codes, exponents_),
                                         kFirstAndSecondOrThird);
    }

    template <typename Take> [[gnu::always_inline]] inline void unpack(const Take &take) const {
        unroll<kCodedGroups>([&]<size_t group>() {
            const uint8_t *from = at_ + group * kCodedGroupBytes;
            const V::Words codes = _mm512_loadu_si512(from);
            const V::Words first = _mm512_loadu_si512(from + 64);
            const V::Words second = _mm512_loadu_si512(from + 128);
            take.template operator()<2 * group>(
                word(codes, _mm512_unpacklo_epi8(first, first)),
                word(_mm512_srli_epi16(codes, 4), _mm512_unpackhi_epi8(first, first)));
            take.template operator()<2 * group + 1>(
                word(_mm512_srli_epi16(codes, 8), _mm512_unpacklo_epi8(second, second)),
                word(_mm512_srli_epi16(codes, 12), _mm512_unpackhi_epi8(second, second)));
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
    V::Words exponents_;
};

// Whether what lies ahead is fetched. Zen 4 reads faster without for one row and two; for more
// nothing else was measured.
bool fetches(size_t rows) {
    return rows > 2 || read_ahead() == ReadAhead::far_and_near;
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
