// What both ways of computing attention (C5) share: the pages of a sequence, how numbers of pages
// come into registers, and how the scores of a query in a block become its weights. Knows no grid.
#pragma once

#include "runtime/kernels/cuda/functions.h"
#include "runtime/kernels/visibility.h"

namespace stasis::kernels::device {

void attend_blocks(DeviceQueue *queue, const DeviceAttention &task); // attention_blocks.cu
void attend_tiles(DeviceQueue *queue, const DeviceAttention &task, const DeviceTile *tiles,
                  size_t tile_count);                        // attention_tiles.cu
void receive(DeviceQueue *queue, const DeviceReceive &task); // attention_received.cu

inline constexpr unsigned kSlots = kPagePositions; // in 32 bits, as indices of threads are
inline constexpr unsigned kTerms = 32; // of a block of the rule (C1)
// Neighbouring lanes of a warp that share a query's scores: lane i has the slots i, i + 8, ...
inline constexpr unsigned kScoreLanes = 8;
inline constexpr unsigned kScoresOfLane = kSlots / kScoreLanes;
// Numbers between the scores of two queries in shared memory: four queries and eight slots of each
// lie in different banks.
inline constexpr unsigned kScoreStride = kSlots + 8;

// --- What is seen (visibility.h). ---

// The pages of a sequence in the task's group.
struct Pages {
    uint16_t *const *pages; // of `first` on
    uint64_t first;
    const uint64_t *evicted; // of block 0 on
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

// A pair as it lies in memory.
__device__ inline float low_of(uint32_t pair) {
    return __builtin_bit_cast(float, pair << 16);
}
__device__ inline float high_of(uint32_t pair) {
    return __builtin_bit_cast(float, pair & 0xFFFF0000U);
}
// What points to a page is read from memory: __ldcg tells the compiler that the page lies in the
// device's memory. Past the first cache: the kernel before may have written there after this one
// began (queue.cu), and what is read is used once or goes to shared memory.
__device__ inline uint32_t pair_at(const uint16_t *x) {
    return __ldcg(reinterpret_cast<const uint32_t *>(x));
}

// Eight neighbours, of which those from `left` on count as +0. `wide`: all eight are there,
// aligned.
__device__ inline uint4 eight_at(const uint16_t *x, size_t left, bool wide) {
    if (wide) {
        return __ldcg(reinterpret_cast<const uint4 *>(x));
    }
    return {left > 0 ? pair_at(x) : 0, left > 2 ? pair_at(x + 2) : 0, left > 4 ? pair_at(x + 4) : 0,
            left > 6 ? pair_at(x + 6) : 0};
}

// The least exponent of the bf16 that were added and do not count as zero. Kept as twice the
// number's bits, less what takes zeros and denormals past all others.
struct Least {
    uint32_t key = 0xFFFFFFFFU;

    __device__ void add(float x) {
        const uint32_t own = 2 * __builtin_bit_cast(uint32_t, x) - 0x01000000U;
        key = own < key ? own : key;
    }
    __device__ uint32_t exponent() const { return (key >> 24) + 1; } // above 255: only zeros
};

// The least key of all lanes, added to one in shared memory by one of them.
__device__ inline void add_of_warp(uint32_t *shared, Least least) {
    const uint32_t key = __reduce_min_sync(kAllLanes, least.key);
    if (threadIdx.x % kWarp == 0) {
        atomicMin(shared, key);
    }
}

// A step of a chain: whether plain arithmetic is enough is known from the exponents.
template <bool kTiny> __device__ inline float chain(float a, float b, float c) {
    return kTiny ? c2_fma(a, b, c) : fma(a, b, c);
}

// --- Weights. ---

struct Weighed {
    float maximum, sum; // m_b and l_b
};

// What a block's and the running partial are multiplied with when they merge. Where nothing has
// been seen yet, (m, l, o) are (-infinity, 0, 0), and merging is exactly what initialising would
// be.
struct Merged {
    float maximum, alpha, beta;
};
__device__ inline Merged merge_maxima(float running, float of_block) {
    const float maximum = of_block > running ? of_block : running;
    return {maximum, exp(add(running, -maximum)), exp(add(of_block, -maximum))};
}
// Nothing here is tiny: sums are at least 1 (or no number), and exp is 0 or above 2^-126.
__device__ inline float merge_sums(float running, float of_block, const Merged &by) {
    return fma(of_block, by.beta, mul(running, by.alpha));
}

// How a block merges with those before it, for all columns.
struct alignas(16) Step {
    float alpha, beta, sum, unused;
};

// The steps of 32 blocks of a row and head, lane i having the maximum and the sum of block i (sum
// 0: nothing is visible there, and the maximum is -infinity); `running`, the maximum before them,
// becomes that behind them.
__device__ inline Step step_of(float maximum, float sum, float &running) {
    const unsigned lane = threadIdx.x;
    float largest = maximum; // of the blocks up to this lane's
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

// The sum behind the first `count` of 32 blocks, of which each has its step.
__device__ inline float merge_steps(const Step *steps, unsigned count, float sum) {
#pragma unroll 8
    for (unsigned i = 0; i < count; ++i) {
        const Step by = steps[i];
        sum = by.sum == 0.0F ? sum : merge_sums(sum, by.sum, {0.0F, by.alpha, by.beta});
    }
    return sum;
}

// Makes the products of a query with the 64 keys (shared memory) its weights p, +0 where a slot is
// not visible. Called by the lanes of a warp together, each with its place among those that share
// the query; only the lane's own slots are touched, and `least` gets the p of these.
__device__ inline Weighed weigh(const DeviceAttention &task, float *scores, uint64_t visible,
                                unsigned lane, Least &least) {
    float own[kScoresOfLane];
    float maximum = -__builtin_inff();
#pragma unroll
    for (unsigned j = 0; j < kScoresOfLane; ++j) {
        const unsigned slot = lane + kScoreLanes * j;
        own[j] = c2_mul(scores[slot], task.scale);
        if (task.softcap != 0.0F) {
            own[j] = c2_mul(task.softcap, tanh(c2_div(own[j], task.softcap)));
        }
        if ((visible >> slot & 1U) != 0) {
            maximum = own[j] > maximum ? own[j] : maximum; // never a NaN
        }
    }
    for (int by = 1; by < static_cast<int>(kScoreLanes); by *= 2) {
        const float other = __shfl_xor_sync(kAllLanes, maximum, by);
        maximum = other > maximum ? other : maximum;
    }
    maximum = add(maximum, 0.0F); // a zero is +0
    float lanes[2] = {};          // of the sum (C4): this one and the one 8 further
#pragma unroll
    for (unsigned j = 0; j < kScoresOfLane; ++j) {
        const unsigned slot = lane + kScoreLanes * j;
        float p = 0.0F;
        if ((visible >> slot & 1U) != 0) {
            p = bf16_to_f32(f32_to_bf16(exp(add(own[j], -maximum))));
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
