// Products of integer weights (C8) in tiles of 8-bit integers, for many rows: left operands are 16
// rows of activations as they are packed, right operands panels of weights. A tile step sums up a
// block of 32 exactly; what makes floats of it is the larger part of the work.
#include "runtime/kernels/amx/kernels.h"
#include "runtime/kernels/amx/tile.h"
#include "runtime/kernels/avx512/integers.h"
#include "runtime/kernels/avx512vnni/kernels.h"
#include "runtime/kernels/generic/blocks/packed.h"
#include "runtime/kernels/generic/blocks/strip.h"
#include "runtime/kernels/generic/panels/tile.h"

namespace stasis::kernels::amx {

namespace {

using V = Avx512Integers;

constexpr size_t kLanes = V::kLanes;

// Tiles 0-3 are sums, 4-5 activations, 6-7 weights; `terms` of each go into a step.
TileConfig configuration(size_t terms) {
    TileConfig config(kTileRows, kTileRows);
    for (size_t tile = 4; tile < 8; ++tile) {
        config.rows[tile] = static_cast<uint8_t>(tile < 6 ? kTileRows : terms / 4);
        config.row_bytes[tile] = static_cast<uint16_t>(tile < 6 ? terms : 64);
    }
    return config;
}

// Sums of 16 rows for 16 outputs.
struct Sums {
    int32_t of[kTileRows][kLanes];
};

// What scratch holds.
struct Scratch {
    uint32_t panel[64 * 10 * kLanes]; // 2048 terms of 32s take the most
    Sums sums[4];
    float edge[kTileRows][kLanes];
};
static_assert(sizeof(Scratch) <= kScratchBytes);

template <Quant type> struct Tiled {
    static constexpr Kind kKind = kind_of(type);
    static constexpr QuantBlock kBlockShape = quant_block(type);
    static constexpr bool kSuper = kBlockShape.elements == 256;
    static constexpr size_t kTiles = kSuper ? 2 : 1; // of sums, for a block
    static constexpr size_t kTurns = 4 / kTiles;
    // Terms of the outputs in a panel. The few steps at the end of a group, which overlap with
    // nothing, ask for many; panels of 256s should leave room in the first level of caches.
    static constexpr size_t kPanelElements = kSuper ? 512 : 2048;
    // Of a block in the panel, in vectors: signed integers, once for each tile of sums; pairs, d
    // and m as BlockScales has them.
    static constexpr size_t kIntegers = kBlockShape.elements / 4;
    static constexpr size_t kPairs = kKind.has_minimum ? kKind.parts / 2 : 0; // only minima
    static constexpr size_t kVectors = kTiles * kIntegers + kPairs + 2;
    static constexpr size_t kStride = kVectors * kLanes; // words

    const Activations x;
    Scratch &scratch;

    // sc * n, up to 4096 in magnitude (32 times 128, 128 times 32), as 128 a + b with b from -64 to
    // 63: all a's of the block, then all b's.
    [[gnu::always_inline]] static inline void split(__m512i u, __m512i scale, uint32_t *to) {
        const __m512i shift = _mm512_set1_epi16(kKind.shift >= 0 ? 1 << kKind.shift : 0);
        const __m512i sc = _mm512_mask_blend_epi16(0xAAAAAAAA, scale, _mm512_slli_epi32(scale, 16));
        const auto product = [&](__m512i n) {
            return _mm512_mullo_epi16(_mm512_sub_epi16(n, shift), sc);
        };
        const auto upper = [](__m512i bytes) {
            return kKind.has_sign ? _mm512_srai_epi16(bytes, 8) : _mm512_srli_epi16(bytes, 8);
        };
        const __m512i even = product(upper(_mm512_slli_epi16(u, 8)));
        const __m512i odd = product(upper(u));
        const auto high = [](__m512i p) {
            return _mm512_srai_epi16(_mm512_add_epi16(p, _mm512_set1_epi16(64)), 7);
        };
        const __m512i a_even = high(even), a_odd = high(odd);
        const __m512i b_even = _mm512_sub_epi16(even, _mm512_slli_epi16(a_even, 7));
        const __m512i b_odd = _mm512_sub_epi16(odd, _mm512_slli_epi16(a_odd, 7));
        const auto bytes = [&](__m512i of_even, __m512i of_odd) {
            return _mm512_mask_blend_epi8(0xAAAAAAAAAAAAAAAA, of_even,
                                          _mm512_slli_epi16(of_odd, 8));
        };
        V::store(to, bytes(a_even, a_odd));
        V::store(to + kIntegers * kLanes, bytes(b_even, b_odd));
    }

    // A block of a strip to one of the panel.
    [[gnu::noinline]] static void unpack(const uint8_t *from, uint32_t *to) {
        const WeightBlock<V, type> block(from, 0);
        const BlockScales<V, type> scales(block);
        unroll<kIntegers>([&]<size_t i>() {
            __m512i u = block.template integers<i>();
            if constexpr (kSuper) {
                constexpr size_t kWordsOf = kIntegers / kKind.parts;
                split(u, (__m512i)scales.scale[i / kWordsOf], to + i * kLanes);
            } else {
                if constexpr (kKind.shift >= 0) {
                    u = _mm512_sub_epi8(u, _mm512_set1_epi8(1 << kKind.shift));
                }
                V::store(to + i * kLanes, u);
            }
        });
        to += kTiles * kIntegers * kLanes;
        unroll<kPairs>([&]<size_t i>() { V::store(to + i * kLanes, (__m512i)scales.pair[i]); });
        auto *floats = reinterpret_cast<float *>(to + kPairs * kLanes);
        V::store_floats(floats, scales.d);
        if constexpr (kKind.has_minimum) {
            V::store_floats(floats + kLanes, scales.m);
        }
    }

    // The integer sums of 16 rows, whose activations are at `q`, for kLanes outputs, in tile
    // kTiles * turn and, of blocks of 256, the one behind it.
    template <size_t turn>
    [[gnu::always_inline]] inline void sum(const int8_t *q, size_t block) const {
        if constexpr (kSuper) {
            const uint32_t *parts = scratch.panel + block * kStride;
            zero<2 * turn>(), zero<2 * turn + 1>();
            for (size_t i = 0; i < 4; ++i) {
                load<4>(q + 64 * i, 256);
                load<6>(parts + 16 * kLanes * i, 64);
                multiply_add_bytes<2 * turn, 4, 6>();
                load<7>(parts + (kIntegers + 16 * i) * kLanes, 64);
                multiply_add_bytes<2 * turn + 1, 4, 7>();
            }
        } else {
            zero<turn>();
            load<4 + turn % 2>(q, 32);
            load<6 + turn % 2>(scratch.panel + block * kStride, 64);
            multiply_add_bytes<turn, 4 + turn % 2, 6 + turn % 2>();
        }
    }
    template <size_t turn> [[gnu::always_inline]] inline void store_sums() const {
        store<kTiles * turn>(scratch.sums + kTiles * turn, 64);
        if constexpr (kSuper) {
            store<kTiles * turn + 1>(scratch.sums + kTiles * turn + 1, 64);
        }
    }

    // The block's part of the products, from its integer sums in `sums`.
    [[gnu::always_inline]] inline void add(size_t entry, const uint32_t *block, const Sums *sums,
                                           __m512 (&total)[kTileRows]) const {
        const float *scales = x.scales(entry);
        const auto *pairs = block + kTiles * kIntegers * kLanes;
        const auto *floats = reinterpret_cast<const float *>(pairs + kPairs * kLanes);
        const __m512 d = V::load_floats(floats);
        unroll<kTileRows>([&]<size_t r>() {
            __m512i sum = V::load(sums[0].of[r]);
            if constexpr (kSuper) {
                sum = _mm512_add_epi32(_mm512_slli_epi32(sum, 7), V::load(sums[1].of[r]));
            }
            const __m512 s = V::broadcast_float(scales + r);
            total[r] = V::fma(V::convert(sum), V::multiply(d, s), total[r]);
            if constexpr (kKind.has_minimum) {
                const __m512 m = V::load_floats(floats + kLanes);
                total[r] =
                    V::fma(V::convert(minimum(entry + r, pairs)), V::multiply(m, s), total[r]);
            }
        });
    }

    [[gnu::always_inline]] inline __m512i minimum(size_t entry, const uint32_t *pairs) const {
        const auto word = [](const void *at) {
            return V::broadcast(static_cast<const uint32_t *>(at));
        };
        if constexpr (!kSuper) {
            return word(&x.sums<BlockSum>(entry)->sum);
        } else {
            const BlockSums &sums = *x.sums<BlockSums>(entry);
            const int16_t *of = kKind.parts == 16 ? sums.of_16 : sums.of_32;
            __m512i sum = _mm512_setzero_si512();
            unroll<kPairs>([&]<size_t j>() {
                sum = _mm512_dpwssd_epi32(sum, V::load(pairs + j * kLanes), word(of + 2 * j));
            });
            return sum;
        }
    }

    // Block i of `count`, in tiles of its turn. Their sums take their time: they are stored when
    // those of the next block are begun, and become floats one step later.
    template <size_t turn>
    [[gnu::always_inline]] inline void step(size_t entry, size_t i, size_t count,
                                            __m512 (&total)[kTileRows]) const {
        if (i < count) {
            sum<turn>(x.integers(entry + i * kGroupRows), i);
        }
        if (i - 1 < count) {
            store_sums<(turn + kTurns - 1) % kTurns>();
        }
        if (i - 2 < count) {
            add(entry + (i - 2) * kGroupRows, scratch.panel + (i - 2) * kStride,
                scratch.sums + kTiles * ((turn + kTurns - 2) % kTurns), total);
        }
    }

    // 16 rows by the panel's blocks; y += the products.
    [[gnu::flatten]] void group(size_t row, size_t block, size_t count, float *y,
                                size_t y_stride) const {
        __m512 total[kTileRows];
        unroll<kTileRows>([&]<size_t r>() { total[r] = V::load_floats(y + r * y_stride); });
        const size_t entry = x.entry(row, block);
        for (size_t i = 0; i < count + 2; i += kTurns) {
            step<0>(entry, i, count, total);
            step<1>(entry, i + 1, count, total);
            if constexpr (kTurns == 4) {
                step<2>(entry, i + 2, count, total);
                step<3>(entry, i + 3, count, total);
            }
        }
        unroll<kTileRows>([&]<size_t r>() { V::store_floats(y + r * y_stride, total[r]); });
    }

    // The same for a group of `rows` rows and `outputs` outputs that exist; what is computed of
    // others is of whatever lies there, and goes nowhere.
    void edge(size_t row, size_t rows, size_t block, size_t count, float *y, size_t y_stride,
              size_t outputs) const {
        for (size_t r = 0; r < rows; ++r) {
            __builtin_memcpy(scratch.edge[r], y + r * y_stride, outputs * sizeof(float));
        }
        group(row, block, count, scratch.edge[0], kLanes);
        for (size_t r = 0; r < rows; ++r) {
            __builtin_memcpy(y + r * y_stride, scratch.edge[r], outputs * sizeof(float));
        }
    }
};

template <Quant type> void multiply_tiled(const QuantizedMatmul &task) {
    using Type = Tiled<type>;
    constexpr size_t kMost = Type::kPanelElements / Type::kBlockShape.elements;
    static_assert(kMost * Type::kStride * sizeof(uint32_t) <= sizeof(Scratch::panel));
    const Type tiled{{task.packed, task.rows, task.depth, Type::kBlockShape.elements},
                     *static_cast<Scratch *>(task.scratch)};
    const Tiles tiles(configuration(Type::kSuper ? 64 : 32));
    for (size_t row = 0; row < task.rows; ++row) {
        clear(task.y + row * task.y_stride, task.outputs);
    }
    const uint8_t *w = task.w;
    for (size_t output = 0; output < task.outputs; output += kLanes) {
        const size_t outputs = smaller(kLanes, task.outputs - output);
        for (size_t block = 0; block < tiled.x.blocks; block += kMost) {
            const size_t count = smaller(kMost, tiled.x.blocks - block);
            for (size_t i = 0; i < count; ++i, w += strip_block(type).bytes) {
                Type::unpack(w, tiled.scratch.panel + i * Type::kStride);
            }
            for (size_t row = 0; row < task.rows; row += kGroupRows) {
                const size_t rows = smaller(kGroupRows, task.rows - row);
                float *y = task.y + row * task.y_stride + output;
                if (rows == kGroupRows && outputs == kLanes) {
                    tiled.group(row, block, count, y, task.y_stride);
                } else {
                    tiled.edge(row, rows, block, count, y, task.y_stride, outputs);
                }
            }
        }
    }
}

} // namespace

void matmul_quantized(const QuantizedMatmul &task) {
    if (task.rows <= kGroupRows) { // which are no whole group
        return avx512vnni::matmul_quantized(task);
    }
    switch (task.type) {
    case Quant::q8_0:
        return multiply_tiled<Quant::q8_0>(task);
    case Quant::q4_0:
        return multiply_tiled<Quant::q4_0>(task);
    case Quant::q4_1:
        return multiply_tiled<Quant::q4_1>(task);
    case Quant::q5_0:
        return multiply_tiled<Quant::q5_0>(task);
    case Quant::q5_1:
        return multiply_tiled<Quant::q5_1>(task);
    case Quant::q4_k:
        return multiply_tiled<Quant::q4_k>(task);
    case Quant::q5_k:
        return multiply_tiled<Quant::q5_k>(task);
    case Quant::q6_k:
        return multiply_tiled<Quant::q6_k>(task);
    case Quant::q2_k:
        return multiply_tiled<Quant::q2_k>(task);
    case Quant::q3_k:
        return multiply_tiled<Quant::q3_k>(task);
    case Quant::iq4_nl:
        return multiply_tiled<Quant::iq4_nl>(task);
    case Quant::iq4_xs:
        return multiply_tiled<Quant::iq4_xs>(task);
    case Quant::mxfp4:
        return multiply_tiled<Quant::mxfp4>(task);
    }
}

} // namespace stasis::kernels::amx
