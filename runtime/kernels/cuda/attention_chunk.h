// The arithmetic of attention_tiles.cu on the chunks of a page that are in shared memory, and on
// the numbers that a lane has of them. 8 lanes of a warp, a team, share a query. Knows no grid but
// the indices of threads.
#pragma once

#include "runtime/kernels/cuda/attention_walk.h"

namespace stasis::kernels::device {

inline constexpr unsigned kThreads = 128;
inline constexpr unsigned kTeams = kThreads / kScoreLanes; // teams of lanes that share a query
inline constexpr unsigned kPiece = 8;                      // numbers that a thread loads at once
// Numbers between rows of 32 terms: eight rows, or four of other queries, are read without bank
// conflict.
inline constexpr unsigned kStride = kTerms + 4;
inline constexpr unsigned kLeft = kSlots * kStride; // a chunk of keys, or of values
static_assert((kTerms + 1) * kColumns <= kLeft);
inline constexpr unsigned kLeftPieces = kSlots * kTerms / kPiece / kThreads; // of a thread
static_assert(kLeftPieces * kThreads * kPiece == kTerms * kColumns);

// Lanes of a team differ in bits 1 to 3: lanes that differ in bit 1 read the same number of a
// query, lanes that differ in bit 0 the same of a key, which shared memory provides at once.
__device__ inline unsigned team_of_thread() {
    return threadIdx.x / kWarp * 4 + (threadIdx.x >> 3 & 2U) + (threadIdx.x & 1U);
}
__device__ inline unsigned lane_of_thread() {
    return threadIdx.x >> 1 & 7U;
}
inline constexpr int kLaneStep = 2; // between the lanes of a team

__device__ inline float4 four_at(const float *x) {
    return *reinterpret_cast<const float4 *>(x);
}
__device__ inline float component(const float4 &four, unsigned i) { // i is known when compiled
    return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
}

// Widens a piece into shared memory.
__device__ inline void widen(const uint4 &eight, float *to) {
    auto *place = reinterpret_cast<float4 *>(to);
    place[0] = {low_of(eight.x), high_of(eight.x), low_of(eight.y), high_of(eight.y)};
    place[1] = {low_of(eight.z), high_of(eight.z), low_of(eight.w), high_of(eight.w)};
}
__device__ inline void add_piece(Least &least, const uint4 &eight) {
    for (const uint32_t pair : {eight.x, eight.y, eight.z, eight.w}) {
        least.add(low_of(pair)), least.add(high_of(pair));
    }
}

// exp (C3) of a number that is not positive, or NaN, without branches.
__device__ inline float exp_below(float x) {
    constexpr float kCoefficients[] = {1.0F,           1.0F,           0x1.fffffcp-2F,
                                       0x1.555490p-3F, 0x1.5558f4p-5F, 0x1.123a68p-7F,
                                       0x1.6a235ep-10F};
    const float shifted = fma(x, 0x1.715476p+0F, 0x1.8p+23F);
    const float n = add(shifted, -0x1.8p+23F);
    const float r = fma(n, -0x1.7f7d1cp-20F, fma(n, -0x1.62e4p-1F, x));
    const float power = polynomial(kCoefficients, r);
    const float y = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, power) +
                                                  (__builtin_bit_cast(uint32_t, shifted) << 23));
    const float kept = x >= kExpFloor ? y : x; // NaN stays NaN
    return x < kExpFloor ? 0.0F : kept;
}

// A lane's numbers of each of its team's queries: of 8 slots, or of 8 columns.
template <unsigned kRows> using Sums = float[kRows][8];

// Adds one block of the rule, of numbers in shared memory. `x` is the first of this thread's
// rows, of queries or weights, which are kTeams * `stride` apart. left_at(four, n) returns the
// n-th of the 8 fours of the other factors that belong to terms 4 four and further, and
// factor(fours, t, j) of these the one of term t and column j. Steps go back and forth, so that
// each has a factor in common with the one before it (product_tiles.cu).
template <unsigned kRows, typename LeftAt, typename Factor>
__device__ inline void add_rule_block(const float *x, unsigned stride, const LeftAt &left_at,
                                      const Factor &factor, Sums<kRows> &total) {
    Sums<kRows> sums[2] = {}; // even, odd
#pragma unroll 1
    for (unsigned four = 0; four < kTerms / 4; ++four) {
        float4 own[kRows], other[8];
#pragma unroll
        for (unsigned i = 0; i < kRows; ++i) {
            own[i] = four_at(x + i * kTeams * stride + 4 * four);
        }
#pragma unroll
        for (unsigned n = 0; n < 8; ++n) {
            other[n] = left_at(four, n);
        }
#pragma unroll
        for (unsigned t = 0; t < 4; ++t) {
#pragma unroll
            for (unsigned i = 0; i < kRows; ++i) {
#pragma unroll
                for (unsigned n = 0; n < 8; ++n) {
                    const unsigned j = i % 2 == 0 ? n : 7 - n;
                    float &sum = sums[t % 2][i][j];
                    sum = fma(component(own[i], t), factor(other, t, j), sum);
                }
            }
        }
    }
#pragma unroll
    for (unsigned i = 0; i < kRows; ++i) {
#pragma unroll
        for (unsigned j = 0; j < 8; ++j) {
            total[i][j] = add(total[i][j], add(sums[0][i][j], sums[1][i][j]));
        }
    }
}

// The same with a tiny result settled at every step; rarely needed, so small and slow.
// left_at(j) returns the address of the first of the 32 terms of column j, which are `step`
// apart.
template <unsigned kRows, typename LeftAt>
__device__ inline void add_carefully(const float *x, unsigned stride, const LeftAt &left_at,
                                     unsigned step, Sums<kRows> &total) {
#pragma unroll
    for (unsigned i = 0; i < kRows; ++i) {
#pragma unroll 1
        for (unsigned j = 0; j < 8; ++j) {
            const float *a = x + i * kTeams * stride, *b = left_at(j);
            float even = 0.0F, odd = 0.0F;
#pragma unroll 1
            for (unsigned k = 0; k < kTerms; k += 2) {
                even = c2_fma(a[k], b[k * step], even);
                odd = c2_fma(a[k + 1], b[(k + 1) * step], odd);
            }
            const float sum = add(even, odd);
#pragma unroll
            for (unsigned n = 0; n < 8; ++n) { // registers have no index
                total[i][n] = n == j ? add(total[i][n], sum) : total[i][n];
            }
        }
    }
}

// Reports whether plain arithmetic may not be enough for numbers of these keys.
__device__ inline bool are_tiny(uint32_t right, uint32_t left) {
    return Least{right}.exponent() + Least{left}.exponent() < kSafeExponents;
}

// Bit 8 j of a half is the lane's slot j.
__device__ inline bool is_visible(unsigned j, uint32_t low, uint32_t high) {
    return ((j < 4 ? low : high) >> j % 4 * 8 & 1U) != 0;
}

// Returns o merged with a page's share of it. One of the factors is 1, so that only the product
// with the other can be tiny, and not where that is 0. `exact` becomes false if one may be.
__device__ inline float merged(float o, float share, float alpha, float beta, bool &exact) {
    const float before = mul(o, alpha);
    const float result = fma(share, beta, before);
    exact = exact && !((alpha != 1.0F && alpha != 0.0F && unsettled(before)) ||
                       (beta != 1.0F && beta != 0.0F && unsettled(result)));
    return result;
}

} // namespace stasis::kernels::device
