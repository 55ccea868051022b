// What the kernels of matrix products share (C1, C2): terms in shared memory, the test whether the
// plain fma is enough for them, the careful sum of a block where it is not, the activations.
// Terms lie in pieces of 8 (16 bytes), 4 of them to a block of the rule.
#pragma once

#include "runtime/kernels/cuda/copies.h"
#include "runtime/kernels/cuda/functions.h"

namespace stasis::kernels::device {

inline constexpr unsigned kTerms = 32;     // of a block of the rule
inline constexpr unsigned kPieceTerms = 8; // of one load
inline constexpr unsigned kPieces = kTerms / kPieceTerms;

// Few rows: streams the weights once for each 8 of them (product_rows.cu). False: this depth leaves
// no room for that. The gated one writes y at once.
bool few_rows(DeviceQueue *queue, const DeviceProduct &task);
bool few_rows(DeviceQueue *queue, const DeviceGatedProduct &task);
// Any rows and depth, by tiles (product_tiles.cu), and how many those are.
void tiles(DeviceQueue *queue, const DeviceProduct &task);
size_t count_tiles(const DeviceProduct &task);

__host__ __device__ inline size_t divide_up(size_t a, size_t b) {
    return (a + b - 1) / b;
}

// Two bf16 terms lie in a word, the first one in the low half.
__device__ inline float first_of(uint32_t pair) {
    return __builtin_bit_cast(float, pair << 16);
}
__device__ inline float second_of(uint32_t pair) {
    return __builtin_bit_cast(float, pair & 0xFFFF0000U);
}
// Pair 0 to 3 of a piece; `p` is known to the compiler, so that it costs nothing.
__device__ inline uint32_t pair_of(const uint4 &piece, unsigned p) {
    return p == 0 ? piece.x : p == 1 ? piece.y : p == 2 ? piece.z : piece.w;
}

// Where piece `piece` of block `block` lies among blocks of 4 pieces: turned by pairs of blocks, so
// that the same piece of 8 blocks side by side comes from all banks of shared memory.
__device__ inline unsigned turned(unsigned block, unsigned piece) {
    return block * kPieces + (piece ^ ((block >> 1) & 3U));
}

// Terms k .. k + 7 of a row, +0 beyond its depth. Rows of a depth that is no multiple of 8 begin
// anywhere: no wide loads there.
__device__ inline uint4 load_piece(const uint16_t *row, size_t k, size_t depth) {
    if (depth % kPieceTerms == 0) {
        return k < depth ? *reinterpret_cast<const uint4 *>(row + k) : uint4{0, 0, 0, 0};
    }
    uint32_t pairs[kPieces] = {};
    for (unsigned i = 0; i < kPieceTerms; ++i) {
        const uint32_t term = k + i < depth ? row[k + i] : 0U;
        pairs[i / 2] |= term << (i % 2 * 16);
    }
    return {pairs[0], pairs[1], pairs[2], pairs[3]};
}
// The same to shared memory, which they reach once the copies of this thread are waited for.
__device__ inline void copy_piece(uint4 *to, const uint16_t *row, size_t k, size_t depth) {
    if (depth % kPieceTerms == 0 && k < depth) {
        copy_async(to, row + k);
    } else {
        *to = load_piece(row, k, depth);
    }
}

// Whether the plain fma is enough (arithmetic.h) for weights of which `least` is the smallest
// exponent: not for x whose exponent is from 1 on and below kSafeExponents - least. That many
// exponents, on the scale of a bf16, twice in a word.
__device__ inline uint32_t unsafe_span(uint32_t least) {
    const uint32_t exponents = least + 1 < kSafeExponents ? kSafeExponents - least - 1 : 0;
    return (exponents << 7) * 0x00010001U;
}
// Has a high bit set in 0x80008000 if a term of the pair is within the span. In each half, with m
// the magnitude: 0x8000 + m - 0x80 has its high bit if m is no zero, and loses it when the span is
// subtracted if m is within. No half borrows of the other.
__device__ inline uint32_t unsafe_terms(uint32_t pair, uint32_t span) {
    const uint32_t from_one = ((pair & 0x7FFF7FFFU) | 0x80008000U) - 0x00800080U;
    return from_one & ~(from_one - span);
}
__device__ inline uint32_t unsafe_terms(const uint4 &piece, uint32_t span) {
    return unsafe_terms(piece.x, span) | unsafe_terms(piece.y, span) | unsafe_terms(piece.z, span) |
           unsafe_terms(piece.w, span);
}
inline constexpr uint32_t kUnsafe = 0x80008000U;

// The block sum e + o with a tiny result settled at every step; rarely needed, so small and slow.
// x(p) and w(p) give pair p of the block.
template <typename X, typename W> __device__ float careful_sum(const X &x, const W &w) {
    float even = 0.0F, odd = 0.0F;
#pragma unroll 1
    for (unsigned p = 0; p < kTerms / 2; ++p) {
        const uint32_t a = x(p), b = w(p);
        even = c2_fma(first_of(a), first_of(b), even);
        odd = c2_fma(second_of(a), second_of(b), odd);
    }
    return add(even, odd);
}

// y = bf16(act(gate) * up) of C3.
__device__ inline uint16_t activate(float gate, float up, bool gelu) {
    float at = gate;
    if (gelu) {
        at = c2_mul(gate, fma(c2_mul(gate, gate), 0x1.2444f2p-4F, 0x1.988454p+0F));
    }
    return f32_to_bf16(c2_mul(c2_mul(gate, sigmoid(at)), up));
}

} // namespace stasis::kernels::device
