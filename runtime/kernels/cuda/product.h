// The common parts of the kernels of matrix products (C1, C2): terms in shared memory, the test
// whether the plain fma is enough for them, the careful sum of a block for which it is not, the
// activations. Terms are stored in pieces of 8 (16 bytes), 4 pieces to a block of the rule.
#pragma once

#include "runtime/kernels/cuda/copies.h"
#include "runtime/kernels/cuda/functions.h"

namespace stasis::kernels::device {

inline constexpr unsigned kTerms = 32;     // terms of a block of the rule
inline constexpr unsigned kPieceTerms = 8; // terms of one load
inline constexpr unsigned kPieces = kTerms / kPieceTerms;

// Streams the weights once for each 8 rows (product_rows.cu). Returns false if shared memory is too
// small for this depth. The gated one writes y directly.
bool few_rows(DeviceQueue *queue, const DeviceProduct &task);
bool few_rows(DeviceQueue *queue, const DeviceGatedProduct &task);
// Computes any rows and depth by tiles (product_tiles.cu); count_tiles returns their number.
void tiles(DeviceQueue *queue, const DeviceProduct &task);
size_t count_tiles(const DeviceProduct &task);

__host__ __device__ inline size_t divide_up(size_t a, size_t b) {
    return (a + b - 1) / b;
}

// A word holds two bf16 terms, the first one in the low half.
__device__ inline float first_of(uint32_t pair) {
    return __builtin_bit_cast(float, pair << 16);
}
__device__ inline float second_of(uint32_t pair) {
    return __builtin_bit_cast(float, pair & 0xFFFF0000U);
}
// Returns pair 0 to 3 of a piece; `p` is a compile-time constant after unrolling, so this costs
// nothing.
__device__ inline uint32_t pair_of(const uint4 &piece, unsigned p) {
    return p == 0 ? piece.x : p == 1 ? piece.y : p == 2 ? piece.z : piece.w;
}

// Returns the index of piece `piece` of block `block` among blocks of 4 pieces. The pieces are
// permuted by pairs of blocks, so that the same piece of 8 neighbouring blocks comes from all banks
// of shared memory.
__device__ inline unsigned turned(unsigned block, unsigned piece) {
    return block * kPieces + (piece ^ ((block >> 1) & 3U));
}

// Loads terms k .. k + 7 of a row, +0 past its depth. If the depth is no multiple of 8, rows are
// not aligned and wide loads are not possible.
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
// Copies the same to shared memory, which holds them after the wait for this thread's copies.
__device__ inline void copy_piece(uint4 *to, const uint16_t *row, size_t k, size_t depth) {
    if (depth % kPieceTerms == 0 && k < depth) {
        copy_async(to, row + k);
    } else {
        *to = load_piece(row, k, depth);
    }
}

// Returns the exponents of x for which the plain fma is not enough (arithmetic.h) with weights of
// the smallest exponent `least`: those from 1 on and below kSafeExponents - least. Returns their
// number, on the scale of a bf16, twice in a word.
__device__ inline uint32_t unsafe_span(uint32_t least) {
    const uint32_t exponents = least + 1 < kSafeExponents ? kSafeExponents - least - 1 : 0;
    return (exponents << 7) * 0x00010001U;
}
// Returns a word with a high bit set in 0x80008000 if a term of the pair is within the span. In
// each half, with m the magnitude: 0x8000 + m - 0x80 has its high bit if m is not zero, and loses
// it when the span is subtracted if m is within. No half borrows from the other.
__device__ inline uint32_t unsafe_terms(uint32_t pair, uint32_t span) {
    const uint32_t from_one = ((pair & 0x7FFF7FFFU) | 0x80008000U) - 0x00800080U;
    return from_one & ~(from_one - span);
}
__device__ inline uint32_t unsafe_terms(const uint4 &piece, uint32_t span) {
    return unsafe_terms(piece.x, span) | unsafe_terms(piece.y, span) | unsafe_terms(piece.z, span) |
           unsafe_terms(piece.w, span);
}
inline constexpr uint32_t kUnsafe = 0x80008000U;

// Returns the block sum e + o with a tiny result settled at every step; rarely needed, so small and
// slow. x(p) and w(p) return pair p of the block.
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

// Returns bf16(activation(gate) * up) of C3.
__device__ inline uint16_t activate(float gate, float up, Activation activation) {
    float activated = 0;
    switch (activation) {
    case Activation::silu:
        activated = c2_mul(gate, sigmoid(gate));
        break;
    case Activation::gelu_tanh:
        activated = c2_mul(
            gate, sigmoid(c2_mul(gate, fma(c2_mul(gate, gate), 0x1.2444f2p-4F, 0x1.988454p+0F))));
        break;
    }
    return f32_to_bf16(c2_mul(activated, up));
}

} // namespace stasis::kernels::device
