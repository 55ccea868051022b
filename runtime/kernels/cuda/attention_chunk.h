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

// Of a chunk: its buffer of two, and its place among `left` of State.
struct Turn {
    unsigned buffer = 0, third = 0;

    __device__ unsigned before() const { return third == 0 ? 2 : third - 1; }
    __device__ void advance() {
        buffer ^= 1U;
        third = third == 2 ? 0 : third + 1;
    }
};

// The slots of the present page that a query sees.
struct Visible {
    uint32_t low, high; // the lane's: bit 8 j of a half is its slot j
    bool any;           // of the page's slots
};
__device__ inline bool seen(const Visible &visible, unsigned j) {
    return ((j < 4 ? visible.low : visible.high) >> j % 4 * 8 & 1U) != 0;
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

// The smallest magnitudes in a merge. A branch for each of its numbers took longer than the merge.
struct Smallest {
    float before = __builtin_inff(), result = __builtin_inff(); // NaN never wins

    // Returns o merged with a page's share of it.
    __device__ float merged(float o, float share, float alpha, float beta) {
        const float product = mul(o, alpha), sum = fma(share, beta, product);
        before = __builtin_fminf(before, __builtin_fabsf(product));
        result = __builtin_fminf(result, __builtin_fabsf(sum));
        return sum;
    }
    // Reports whether all of them are the contract's. One of the factors is 1, so that only the
    // product with the other can be tiny, and not where that is 0.
    __device__ bool exact(float alpha, float beta) const {
        const bool shrunk = (alpha != 1.0F) & (alpha != 0.0F),
                   small = (beta != 1.0F) & (beta != 0.0F);
        return !((shrunk & unsettled(before)) | (small & unsettled(result)));
    }
};

} // namespace stasis::kernels::device
