// Merging the partial results of a row's blocks in ascending order (C5), by a warp for each 32
// columns of a head.
#pragma once

#include "runtime/kernels/cuda/attention.h"

namespace stasis::kernels::device {

inline constexpr unsigned kTogether =
    8; // blocks loaded together: a short context has fewer than 32

__device__ inline unsigned blocks_of_chunk(uint64_t blocks) {
    return blocks < kWarp ? static_cast<unsigned>(blocks) : kWarp;
}

// 32 blocks of a row and head: lane i has the maximum and the sum of block i, and one column of all
// of them.
struct Chunk {
    float maximum, sum; // sum 0: no slot is visible
    float partial[kWarp];
};

// Loads the first `count` of 32 blocks from `begin` on.
__device__ inline Chunk load_chunk(const DeviceAttention &task, size_t head, uint64_t begin,
                                   unsigned count, size_t column) {
    const unsigned lane = threadIdx.x % kWarp;
    const size_t at = head * task.blocks + begin;
    const float *partial = task.partial + at * task.head_dim + column;
    Chunk chunk = {};
#pragma unroll
    for (unsigned i = 0; i < kWarp; ++i) {
        if (i % kTogether == 0 && i >= count) {
            break;
        }
        const bool there = i < count && column < task.head_dim;
        chunk.partial[i] = there ? __ldcg(partial) : 0.0F;
        partial += task.head_dim;
    }
    // Both are loaded at once; the maximum of a block that sees no slot is undefined.
    const float maximum = lane < count ? __ldcg(task.maximum + at + lane) : 0.0F;
    chunk.sum = lane < count ? __ldcg(task.sum + at + lane) : 0.0F;
    chunk.maximum = chunk.sum != 0.0F ? maximum : -__builtin_inff();
    return chunk;
}

// Merges o with a chunk's `count` blocks. With plain arithmetic, `tiny` becomes true if a result
// may differ from C2's.
template <bool kTiny, unsigned kCount>
__device__ float merge(const Step *steps, const float (&partial)[kCount], unsigned count, float o,
                       bool &tiny) {
#pragma unroll
    for (unsigned i = 0; i < kCount; ++i) {
        if (i % kTogether == 0 && i >= count) {
            break;
        }
        const Step by = steps[i];
        const float o_b = by.sum == 0.0F ? 0.0F : partial[i]; // not written if no slot is visible
        if (kTiny) {
            o = c2_fma(o_b, by.beta, c2_mul(o, by.alpha));
            continue;
        }
        const float scaled = mul(o, by.alpha);
        tiny = tiny || (unsettled(scaled) && o != 0.0F);
        o = fma(o_b, by.beta, scaled);
        tiny = tiny || (unsettled(o) && o_b != 0.0F);
    }
    return o;
}

// Merges 32 columns of a row and head, `column` is the lane's, over the first `count` blocks, and
// stores the output. `steps` is a workspace of kWarp steps of this warp.
__device__ inline void merge_columns(const DeviceAttention &task, size_t head, size_t column,
                                     uint64_t count, Step *steps) {
    float maximum = -__builtin_inff(), sum = 0.0F, o = 0.0F;
    unsigned here = blocks_of_chunk(count);
    Chunk chunk = load_chunk(task, head, 0, here, column);
#pragma unroll 1
    for (uint64_t begin = 0; begin < count; begin += kWarp) {
        const Step own = step_of(chunk.maximum, chunk.sum, maximum);
        __syncwarp(); // the previous steps have been read
        steps[threadIdx.x % kWarp] = own;
        __syncwarp();
        const unsigned there = blocks_of_chunk(count - begin - here);
        Chunk next = {};
        if (there > 0) {
            // Completes while this chunk is merged.
            next = load_chunk(task, head, begin + kWarp, there, column);
        }
        bool tiny = false, unused = false;
        // A tiny result is rare, so the chunk is then merged again with C2's arithmetic.
        const float merged = merge<false>(steps, chunk.partial, here, o, tiny);
        o = tiny ? merge<true>(steps, chunk.partial, here, o, unused) : merged;
        sum = merge_steps(steps, here, sum);
        chunk = next, here = there;
    }
    if (column < task.head_dim) {
        task.output[head * task.head_dim + column] = f32_to_bf16(c2_div(o, sum));
    }
}

// Merges o with up to kTogether blocks from `first` on of the `here` ones after block `at`, with
// C2's arithmetic. Rarely needed, so small and slow.
__device__ inline float merge_carefully(const DeviceAttention &task, size_t at, size_t column,
                                        unsigned first, unsigned here, const Step *steps, float o) {
#pragma unroll 1
    for (unsigned i = first; i < first + kTogether && i < here; ++i) {
        const Step by = steps[i];
        const float partial = __ldcg(task.partial + (at + i) * task.head_dim + column);
        o = c2_fma(by.sum == 0.0F ? 0.0F : partial, by.beta, c2_mul(o, by.alpha));
    }
    return o;
}

// merge_columns for few blocks, with less code and fewer registers.
__device__ inline void merge_few(const DeviceAttention &task, size_t head, size_t column,
                                 unsigned count, Step *steps) {
    const unsigned lane = threadIdx.x % kWarp;
    const bool there = column < task.head_dim;
    float maximum = -__builtin_inff(), sum = 0.0F, o = 0.0F;
#pragma unroll 1
    for (unsigned begin = 0; begin < count; begin += kWarp) {
        const unsigned here = blocks_of_chunk(count - begin);
        const size_t at = head * task.blocks + begin;
        const float *place = task.partial + at * task.head_dim + column;
        const float own_sum = lane < here ? __ldcg(task.sum + at + lane) : 0.0F;
        const float own_maximum = lane < here ? __ldcg(task.maximum + at + lane) : 0.0F;
        Step own = {};
#pragma unroll 1
        for (unsigned first = 0; first < here; first += kTogether) {
            float partial[kTogether];
#pragma unroll
            for (unsigned i = 0; i < kTogether; ++i) {
                partial[i] = there && first + i < here ? __ldcg(place) : 0.0F;
                place += task.head_dim;
            }
            if (first == 0) {
                own = step_of(own_sum != 0.0F ? own_maximum : -__builtin_inff(), own_sum, maximum);
                __syncwarp(); // the previous steps have been read
                steps[lane] = own;
                __syncwarp();
            }
            bool tiny = false;
            const float merged = merge<false>(steps + first, partial, here - first, o, tiny);
            o = tiny ? merge_carefully(task, at, column, first, here, steps, o) : merged;
        }
        sum = merge_steps(steps, here, sum);
    }
    if (there) {
        task.output[head * task.head_dim + column] = f32_to_bf16(c2_div(o, sum));
    }
}

} // namespace stasis::kernels::device
