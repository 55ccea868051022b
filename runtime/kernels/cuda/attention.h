// The common parts of both attention kernels (C5): the pages of a sequence, loading numbers of
// pages into registers, and converting the scores of a query in a block to weights. Knows no grid.
#pragma once

#include "runtime/kernels/cuda/functions.h"
#include "runtime/kernels/visibility.h"

namespace stasis::kernels::device {

void attend_blocks(DeviceQueue *queue, const DeviceAttention &task); // attention_blocks.cu
void attend_tiles(DeviceQueue *queue, const DeviceAttention &task, const DeviceTile *tiles,
                  size_t tile_count);                        // attention_tiles.cu
void receive(DeviceQueue *queue, const DeviceReceive &task); // attention_received.cu

inline constexpr unsigned kSlots = kPagePositions; // in 32 bits, as are indices of threads
inline constexpr unsigned kTerms = 32;             // terms of a block of the rule (C1)
// Neighbouring lanes of a warp share a query's scores: lane i has the slots i, i + 8, ...
inline constexpr unsigned kScoreLanes = 8;
inline constexpr unsigned kScoresOfLane = kSlots / kScoreLanes;
// Numbers between the scores of two queries in shared memory: four queries and eight slots of each
// are in different banks.
inline constexpr unsigned kScoreStride = kSlots + 8;

// --- Visible positions (visibility.h). ---

// The pages of a sequence in the task's group.
struct Pages {
    uint16_t *const *pages; // from page `first` on
    uint64_t first;
    const uint64_t *evicted; // from block 0 on
    uint64_t evicted_count;

    __device__ const uint16_t *page(uint64_t block) const { return pages[block - first]; }
    __device__ uint64_t held(uint64_t block) const {
        return held_slots(evicted, evicted_count, block);
    }
};

__device__ inline Pages pages_of(const DeviceAttention &task, uint32_t sequence) {
    const DevicePass &pass = task.pass;
    const DevicePages there = pass.sequences[task.group * pass.sequence_count + sequence];
    const DeviceEvicted evicted = pass.evictions[sequence];
    return {pass.pages + there.at, there.first, pass.evicted + evicted.at, evicted.count};
}

// --- Numbers of bf16. ---

// Two neighbours in memory form a pair.
__device__ inline float low_of(uint32_t pair) {
    return __builtin_bit_cast(float, pair << 16);
}
__device__ inline float high_of(uint32_t pair) {
    return __builtin_bit_cast(float, pair & 0xFFFF0000U);
}
// The pointers to pages are read from memory, so __ldcg states to the compiler that they point to
// device memory. It also bypasses the first-level cache: the previous kernel may write these
// numbers after this one began (queue.cu), and they are used once or stored in shared memory.
__device__ inline uint32_t pair_at(const uint16_t *x) {
    return __ldcg(reinterpret_cast<const uint32_t *>(x));
}

// Loads eight neighbours, of which those from `left` on count as +0. `wide`: all eight exist and
// are aligned.
__device__ inline uint4 eight_at(const uint16_t *x, size_t left, bool wide) {
    if (wide) {
        return __ldcg(reinterpret_cast<const uint4 *>(x));
    }
    return {left > 0 ? pair_at(x) : 0, left > 2 ? pair_at(x + 2) : 0, left > 4 ? pair_at(x + 4) : 0,
            left > 6 ? pair_at(x + 6) : 0};
}

// The least exponent of the bf16 numbers added, except those that count as zero. Stored as twice
// the number's bits, less an offset that moves zeros and denormals above all others.
struct Least {
    uint32_t key = 0xFFFFFFFFU;

    __device__ void add(float x) {
        const uint32_t own = 2 * __builtin_bit_cast(uint32_t, x) - 0x01000000U;
        key = own < key ? own : key;
    }
    __device__ uint32_t exponent() const { return (key >> 24) + 1; } // above 255: only zeros
};

// Stores the least key of all lanes in shared memory, by one of them.
__device__ inline void add_of_warp(uint32_t *shared, Least least) {
    const uint32_t key = __reduce_min_sync(kAllLanes, least.key);
    if (threadIdx.x % kWarp == 0) {
        atomicMin(shared, key);
    }
}

// One step of a chain. The exponents determine whether plain arithmetic is enough.
template <bool kTiny> __device__ inline float chain(float a, float b, float c) {
    return kTiny ? c2_fma(a, b, c) : fma(a, b, c);
}

// --- Weights. ---

struct Weighed {
    float maximum, sum; // m_b and l_b
};

// Replaces numbers that are not positive, or NaN, by their exp (C3), without branches and a step of
// all at a time: where few warps are resident, nothing else hides the latency of a step.
template <unsigned kCount> __device__ void exp_below(float (&x)[kCount]) {
    constexpr float kCoefficients[] = {1.0F,           1.0F,           0x1.fffffcp-2F,
                                       0x1.555490p-3F, 0x1.5558f4p-5F, 0x1.123a68p-7F,
                                       0x1.6a235ep-10F};
    constexpr unsigned kDegree = sizeof kCoefficients / sizeof(float) - 1;
    float shifted[kCount], r[kCount], power[kCount];
#pragma unroll
    for (unsigned i = 0; i < kCount; ++i) {
        shifted[i] = fma(x[i], 0x1.715476p+0F, 0x1.8p+23F);
    }
#pragma unroll
    for (unsigned i = 0; i < kCount; ++i) {
        const float n = add(shifted[i], -0x1.8p+23F);
        r[i] = fma(n, -0x1.7f7d1cp-20F, fma(n, -0x1.62e4p-1F, x[i]));
        power[i] = kCoefficients[kDegree];
    }
#pragma unroll
    for (unsigned k = kDegree; k-- > 0;) {
#pragma unroll
        for (unsigned i = 0; i < kCount; ++i) {
            power[i] = fma(power[i], r[i], kCoefficients[k]);
        }
    }
#pragma unroll
    for (unsigned i = 0; i < kCount; ++i) {
        const float whole = shifted[i], part = power[i]; // the compiler casts no array's elements
        const uint32_t exponent = __builtin_bit_cast(uint32_t, whole) << 23;
        const float y = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, part) + exponent);
        const float kept = x[i] >= kExpFloor ? y : x[i]; // NaN stays NaN
        x[i] = x[i] < kExpFloor ? 0.0F : kept;
    }
}

// The factors of a block's partial and the running partial in a merge. Before the first visible
// block, (m, l, o) is (-infinity, 0, 0), for which merging equals initialising exactly.
struct Merged {
    float maximum, alpha, beta;
};
__device__ inline Merged merge_maxima(float running, float of_block) {
    const float maximum = of_block > running ? of_block : running;
    float factors[2] = {add(running, -maximum), add(of_block, -maximum)};
    exp_below(factors);
    return {maximum, factors[0], factors[1]};
}
// No result is tiny: sums are at least 1 (or NaN), and exp is 0 or above 2^-126.
__device__ inline float merge_sums(float running, float of_block, const Merged &by) {
    return fma(of_block, by.beta, mul(running, by.alpha));
}

// The factors by which a block merges with those before it, for all columns.
struct alignas(16) Step {
    float alpha, beta, sum, unused;
};

// Computes the steps of 32 blocks of a row and head. Lane i has the maximum and the sum of block i
// (sum 0: no slot is visible, and the maximum is -infinity). `running`, the maximum before them,
// becomes the maximum after them.
__device__ inline Step step_of(float maximum, float sum, float &running) {
    const unsigned lane = threadIdx.x % kWarp;
    float largest = maximum; // of the blocks up to and including this lane's
    for (unsigned by = 1; by < kWarp; by *= 2) {
        const float other = __shfl_up_sync(kAllLanes, largest, by);
        largest = lane >= by && other > largest ? other : largest;
    }
    largest = running > largest ? running : largest;
    float before = __shfl_up_sync(kAllLanes, largest, 1);
    before = lane == 0 ? running : before;
    running = __shfl_sync(kAllLanes, largest, static_cast<int>(kWarp) - 1);
    if (sum == 0.0F) {
        return {1.0F, 0.0F, 0.0F, 0.0F};
    }
    const Merged by = merge_maxima(before, maximum);
    return {by.alpha, by.beta, sum, 0.0F};
}

// Returns the sum after the first `count` of 32 blocks, each with its step.
__device__ inline float merge_steps(const Step *steps, unsigned count, float sum) {
#pragma unroll 8
    for (unsigned i = 0; i < count; ++i) {
        const Step by = steps[i];
        sum = by.sum == 0.0F ? sum : merge_sums(sum, by.sum, {0.0F, by.alpha, by.beta});
    }
    return sum;
}

// Returns the score of a product of a query and a key.
__device__ inline float scaled_score(const DeviceAttention &task, float product) {
    const float score = c2_mul(product, task.scale);
    return task.softcap != 0.0F ? c2_mul(task.softcap, tanh(c2_div(score, task.softcap))) : score;
}
// Returns p of a score.
__device__ inline float weight_of(float score, float maximum) {
    return bf16_to_f32(f32_to_bf16(exp(add(score, -maximum))));
}

// Converts the products of a query with the 64 keys (shared memory) to its weights p, +0 for a slot
// that is not visible. All lanes of a warp call it together, each with its index among the lanes
// that share the query. A lane accesses its own slots only, and adds their p to `least`.
__device__ inline Weighed weigh(const DeviceAttention &task, float *scores, uint64_t visible,
                                unsigned lane, Least &least) {
    float own[kScoresOfLane];
    float maximum = -__builtin_inff();
#pragma unroll
    for (unsigned j = 0; j < kScoresOfLane; ++j) {
        const unsigned slot = lane + kScoreLanes * j;
        own[j] = scaled_score(task, scores[slot]);
        if ((visible >> slot & 1U) != 0) {
            maximum = own[j] > maximum ? own[j] : maximum; // NaN never wins
        }
    }
    for (int by = 1; by < static_cast<int>(kScoreLanes); by *= 2) {
        const float other = __shfl_xor_sync(kAllLanes, maximum, by);
        maximum = other > maximum ? other : maximum;
    }

    // The maximum is that of all lanes of the query.
    maximum = add(maximum, 0.0F); // a zero becomes +0
    float lanes[2] = {};          // of the sum (C4): this lane and the one 8 higher
#pragma unroll
    for (unsigned j = 0; j < kScoresOfLane; ++j) {
        const unsigned slot = lane + kScoreLanes * j;
        float p = 0.0F;
        if ((visible >> slot & 1U) != 0) {
            p = weight_of(own[j], maximum);
        }
        lanes[j % 2] = add(lanes[j % 2], p);
        least.add(p);
        scores[slot] = p;
    }
    float sum = add(lanes[0], lanes[1]);
    for (int by = static_cast<int>(kScoreLanes) / 2; by > 0; by /= 2) {
        sum = add(sum, __shfl_xor_sync(kAllLanes, sum, by));
    }
    return {maximum, sum};
}

} // namespace stasis::kernels::device
