// Attention of a row to one page (C5): the queries that share a KV head, by one block of threads.
// Keys and values of the page are copied to shared memory, so that the copies can begin before the
// queries are there. Loops are short and little unrolled: a block runs its code once, and on an
// H200 fetching it took longer than running it.
#pragma once

#include "runtime/kernels/cuda/attention.h"
#include "runtime/kernels/cuda/copies.h"
#include "runtime/kernels/cuda/heads.h"

namespace stasis::kernels::device {

inline constexpr unsigned kPageThreads = 512, kPageWarps = kPageThreads / kWarp;
// Numbers between the parts of a query for different blocks of the rule.
inline constexpr unsigned kQueryStride = kTerms + 4;
inline constexpr unsigned kPieceNumbers = 8; // bf16 numbers of 16 bytes

// The parts of a block's shared memory, in bytes from its start.
struct PageRoom {
    unsigned group_heads, parts; // parts: blocks of the rule along a head
    unsigned pieces, stride;     // of 16 bytes of a slot; those between slots, odd for the banks
    unsigned query;              // f32 [group_heads][parts][kQueryStride]
    // f32 [group_heads][parts][kScoreStride] products with keys; before, [warps][head_dim] heads;
    // later, [group_heads][2][head_dim] products with values.
    unsigned sums;
    unsigned weights; // f32 [group_heads][kScoreStride]
    unsigned angles;  // f32 [head_dim] cosines, then sines, of the row
    unsigned bytes;

    PageRoom(size_t heads, size_t kv_heads, size_t head_dim) {
        const auto n = static_cast<unsigned>(head_dim);
        group_heads = static_cast<unsigned>(heads / kv_heads);
        parts = (n + kTerms - 1) / kTerms;
        pieces = (n + kPieceNumbers - 1) / kPieceNumbers;
        stride = pieces | 1U;
        const unsigned tile_bytes = kSlots * stride * static_cast<unsigned>(sizeof(uint4));
        const unsigned scores = group_heads * parts * kScoreStride, scratch = kPageWarps * n;
        query = 2 * tile_bytes; // the tiles of keys and values come first
        sums = query + 4 * group_heads * parts * kQueryStride;
        weights = sums + 4 * (scores > scratch ? scores : scratch);
        angles = weights + 4 * group_heads * kScoreStride;
        bytes = angles + 4 * n;
        // Merging uses it all anew.
        constexpr auto kSteps = static_cast<unsigned>(kPageThreads * sizeof(Step));
        bytes = bytes > kSteps ? bytes : kSteps;
    }
};

// A row, its queries that share a KV head, and one page.
struct Page {
    const DeviceAttention &task;
    const PageRoom &room;
    const size_t row, kv_head;
    const uint64_t visible;
    unsigned char *shared;
    uint32_t *least; // keys of Least: of queries, keys, weights and values

    __device__ float *floats(unsigned at) const { return reinterpret_cast<float *>(shared + at); }
    __device__ uint4 *keys() const { return reinterpret_cast<uint4 *>(shared); }
    __device__ uint4 *values() const { return keys() + kSlots * room.stride; }
    __device__ uint16_t *slot_of(uint4 *tile, unsigned slot) const {
        return reinterpret_cast<uint16_t *>(tile + slot * room.stride);
    }
    __device__ float *query_at(unsigned head) const {
        return floats(room.query) + head * room.parts * kQueryStride;
    }
    // Returns the index of a query head's partial results.
    __device__ size_t head_at(unsigned head) const {
        return row * task.heads + kv_head * room.group_heads + head;
    }

    // Begins to copy the slots of `which` from a page to a tile; the others become +0.
    __device__ void copy(const uint16_t *from, uint64_t which, uint4 *tile) const {
        const auto n = static_cast<unsigned>(task.head_dim);
        for (unsigned i = threadIdx.x; i < kSlots * room.pieces; i += kPageThreads) {
            const unsigned slot = i / room.pieces, piece = i % room.pieces;
            uint4 *to = tile + slot * room.stride + piece;
            const uint16_t *own = from + slot * n + piece * kPieceNumbers;
            if ((which >> slot & 1U) == 0) {
                *to = {0, 0, 0, 0};
            } else if (n % kPieceNumbers == 0) {
                copy_async(to, own);
            } else {
                *to = eight_at(own, n - piece * kPieceNumbers, false);
            }
        }
        end_copies();
    }

    // Adds the exponents of a tile, as far as this thread filled it, to one of `least`.
    __device__ void scan(const uint4 *tile, unsigned which) const {
        Least own;
        for (unsigned i = threadIdx.x; i < kSlots * room.pieces; i += kPageThreads) {
            const uint4 piece = tile[i / room.pieces * room.stride + i % room.pieces];
            const uint32_t pairs[] = {piece.x, piece.y, piece.z, piece.w};
#pragma unroll
            for (unsigned j = 0; j < 4; ++j) {
                own.add(low_of(pairs[j]));
                own.add(high_of(pairs[j]));
            }
        }
        add_of_warp(&least[which], own);
    }

    __device__ void stage_query() const {
        const auto n = static_cast<unsigned>(task.head_dim);
        const uint16_t *from = task.query + head_at(0) * n;
        const unsigned terms = room.parts * kTerms;
        Least own_least;
        for (unsigned i = threadIdx.x; i < room.group_heads * terms; i += kPageThreads) {
            const unsigned head = i / terms, term = i % terms;
            float x = 0.0F;
            if (term < n) {
                x = bf16_to_f32(from[head * n + term]);
                own_least.add(x);
            }
            query_at(head)[term / kTerms * kQueryStride + term % kTerms] = x;
        }
        add_of_warp(&least[0], own_least);
    }

    // Finishes the queries, a warp each; `rounded` gets them too unless it is null.
    __device__ void finish_queries(const DeviceHeads &heads, uint16_t *rounded) const {
        const auto n = static_cast<unsigned>(task.head_dim);
        const float *cosine = floats(room.angles), *sine = cosine + n / 2;
        const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
        float *x = floats(room.sums) + warp * n;
        Least own_least;
        for (unsigned head = warp; head < room.group_heads; head += kPageWarps) {
            fetch_head(heads.query + head_at(head) * n, n, heads.interleaved, x);
            float *to = query_at(head);
            finish_head(x, n, heads.eps, heads.query_norm, cosine, sine,
                        [&](unsigned i, uint16_t bits) {
                            const float own = bf16_to_f32(bits);
                            to[i / kTerms * kQueryStride + i % kTerms] = own;
                            own_least.add(own);
                            if (rounded != nullptr) {
                                rounded[head_at(head) * n + i] = bits;
                            }
                        });
            for (unsigned i = n + lane; i < room.parts * kTerms; i += kWarp) {
                to[i / kTerms * kQueryStride + i % kTerms] = 0.0F;
            }
            __syncwarp(); // x has been read
        }
        add_of_warp(&least[0], own_least);
    }

    // Finishes the row's key and value, by two of the warps, in the tiles and in the page, which
    // begins with this KV head. Returns whether this thread's part is finite.
    __device__ bool finish_key_value(const DeviceHeads &heads, unsigned slot,
                                     uint16_t *page) const {
        const auto n = static_cast<unsigned>(task.head_dim);
        const float *cosine = floats(room.angles), *sine = cosine + n / 2;
        const unsigned warp = threadIdx.x / kWarp;
        const size_t at = (row * heads.kv_heads + kv_head) * n;
        bool finite = true;
        Least own_least;
        if (warp == kPageWarps - 1) {
            float *x = floats(room.sums) + warp * n;
            uint16_t *tile = slot_of(keys(), slot), *place = page + task.keys_at + slot * n;
            fetch_head(heads.key + at, n, heads.interleaved, x);
            finite = finish_head(x, n, heads.eps, heads.key_norm, cosine, sine,
                                 [&](unsigned i, uint16_t bits) {
                                     tile[i] = place[i] = bits;
                                     own_least.add(bf16_to_f32(bits));
                                 });
            add_of_warp(&least[1], own_least);
        } else if (warp == kPageWarps - 2) {
            uint16_t *tile = slot_of(values(), slot), *place = page + task.values_at + slot * n;
            for (unsigned i = threadIdx.x % kWarp; i < n; i += kWarp) {
                const uint16_t bits = f32_to_bf16(__ldcg(heads.value + at + i));
                tile[i] = place[i] = bits;
                own_least.add(bf16_to_f32(bits));
                finite = finite && is_finite_bf16(bits);
            }
            add_of_warp(&least[3], own_least);
        }
        return finite;
    }

    // Reports whether plain arithmetic is not enough for products of two kinds of numbers.
    __device__ bool tiny(unsigned a, unsigned b) const {
        return Least{least[a]}.exponent() + Least{least[b]}.exponent() < kSafeExponents;
    }

    // Each thread multiplies 32 terms of a key with those of a query. Products of slots that are
    // not visible are not used.
    template <bool kTiny> __device__ void multiply_keys() const {
        const unsigned count = room.group_heads * room.parts * kSlots;
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < count; i += kPageThreads) {
            const unsigned slot = i % kSlots, of_head = i / kSlots, part = of_head % room.parts;
            const float *query = floats(room.query) + of_head * kQueryStride;
            const uint4 *key = keys() + slot * room.stride;
            float even = 0.0F, odd = 0.0F;
#pragma unroll
            for (unsigned p = 0; p < kTerms / kPieceNumbers; ++p) {
                const unsigned piece = part * (kTerms / kPieceNumbers) + p;
                const uint4 eight = piece < room.pieces ? key[piece] : uint4{0, 0, 0, 0};
                const uint32_t pairs[] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
                for (unsigned j = 0; j < 4; j += 2) {
                    const auto own =
                        *reinterpret_cast<const float4 *>(query + p * kPieceNumbers + 2 * j);
                    even = chain<kTiny>(own.x, low_of(pairs[j]), even);
                    odd = chain<kTiny>(own.y, high_of(pairs[j]), odd);
                    even = chain<kTiny>(own.z, low_of(pairs[j + 1]), even);
                    odd = chain<kTiny>(own.w, high_of(pairs[j + 1]), odd);
                }
            }
            floats(room.sums)[of_head * kScoreStride + slot] = add(even, odd);
        }
    }

    // A warp works on each head, two slots a lane.
    __device__ void weigh_scores(size_t index) const {
        const unsigned lane = threadIdx.x % kWarp;
        Least own_least;
        for (unsigned head = threadIdx.x / kWarp; head < room.group_heads; head += kPageWarps) {
            weigh_head(index, head, lane, own_least);
        }
        add_of_warp(&least[2], own_least);
    }

    __device__ void weigh_head(size_t index, unsigned head, unsigned lane, Least &own_least) const {
        const float *sums = floats(room.sums) + head * room.parts * kScoreStride;
        float *weights = floats(room.weights) + head * kScoreStride;
        float score[2] = {}, maximum = -__builtin_inff();
        bool seen[2];
#pragma unroll
        for (unsigned j = 0; j < 2; ++j) {
            const unsigned slot = lane + kWarp * j;
#pragma unroll 4
            for (unsigned part = 0; part < room.parts; ++part) {
                score[j] = add(score[j], sums[part * kScoreStride + slot]);
            }
            score[j] = scaled_score(task, score[j]);
            seen[j] = (visible >> slot & 1U) != 0;
            maximum = seen[j] && score[j] > maximum ? score[j] : maximum; // NaN never wins
        }
        for (int by = 1; by < static_cast<int>(kWarp); by *= 2) {
            const float other = __shfl_xor_sync(kAllLanes, maximum, by);
            maximum = other > maximum ? other : maximum;
        }
        maximum = add(maximum, 0.0F); // a zero becomes +0

        // The sum has 16 lanes (C4); lane i takes the slots i, i + 16, i + 32, i + 48.
        float p[2], sum = 0.0F;
#pragma unroll
        for (unsigned j = 0; j < 2; ++j) {
            p[j] = seen[j] ? weight_of(score[j], maximum) : 0.0F;
            weights[lane + kWarp * j] = p[j];
            own_least.add(p[j]);
            sum = add(sum, p[j]);
            sum = add(sum, __shfl_down_sync(kAllLanes, p[j], kSumLanes));
        }
        for (int by = static_cast<int>(kSumLanes) / 2; by > 0; by /= 2) {
            sum = add(sum, __shfl_xor_sync(kAllLanes, sum, by));
        }
        if (lane == 0) {
            task.maximum[head_at(head) * task.blocks + index] = maximum;
            task.sum[head_at(head) * task.blocks + index] = sum;
        }
    }

    // Each thread multiplies 32 slots of two columns with the weights of a query.
    template <bool kTiny> __device__ void multiply_values() const {
        const auto pairs = static_cast<unsigned>(task.head_dim / 2);
        const unsigned stride = room.stride * kPieceNumbers / 2; // pairs of a slot
#pragma unroll 1
        for (unsigned i = threadIdx.x; i < room.group_heads * 2 * pairs; i += kPageThreads) {
            const unsigned pair = i % pairs, half = i / pairs % 2, head = i / pairs / 2;
            const float *weights = floats(room.weights) + head * kScoreStride + half * kTerms;
            const auto *value =
                reinterpret_cast<const uint32_t *>(values()) + half * kTerms * stride + pair;
            float even[2] = {}, odd[2] = {};
#pragma unroll 2
            for (unsigned k = 0; k < kTerms; k += 4) {
                const float4 p = *reinterpret_cast<const float4 *>(weights + k);
                const uint32_t v[] = {value[k * stride], value[(k + 1) * stride],
                                      value[(k + 2) * stride], value[(k + 3) * stride]};
                even[0] = chain<kTiny>(p.x, low_of(v[0]), even[0]);
                even[1] = chain<kTiny>(p.x, high_of(v[0]), even[1]);
                odd[0] = chain<kTiny>(p.y, low_of(v[1]), odd[0]);
                odd[1] = chain<kTiny>(p.y, high_of(v[1]), odd[1]);
                even[0] = chain<kTiny>(p.z, low_of(v[2]), even[0]);
                even[1] = chain<kTiny>(p.z, high_of(v[2]), even[1]);
                odd[0] = chain<kTiny>(p.w, low_of(v[3]), odd[0]);
                odd[1] = chain<kTiny>(p.w, high_of(v[3]), odd[1]);
            }
            float *to = floats(room.sums) + (head * 2 + half) * task.head_dim + 2 * pair;
            *reinterpret_cast<float2 *>(to) = {add(even[0], odd[0]), add(even[1], odd[1])};
        }
    }

    __device__ void store(size_t index) const {
        const auto columns = static_cast<unsigned>(task.head_dim);
        for (unsigned i = threadIdx.x; i < room.group_heads * columns; i += kPageThreads) {
            const unsigned head = i / columns, column = i % columns;
            const float *of_head = floats(room.sums) + head * 2 * columns;
            const float sum = add(of_head[column], of_head[columns + column]);
            task.partial[(head_at(head) * task.blocks + index) * columns + column] =
                add(sum, 0.0F); // a zero becomes +0
        }
    }
};

} // namespace stasis::kernels::device
