// Attention received (C10) by the positions of tracked sequences: computes the weights again, block
// by block, then each block's share in the merged row. The sums are integers, so any order of
// addition gives the same result. Knows no values.
#include "runtime/kernels/cuda/attention.h"
#include "runtime/kernels/cuda/kernels.h"

#define STASIS_FUNCTION __device__ inline
#include "runtime/kernels/share.h"
#undef STASIS_FUNCTION

namespace stasis::kernels::device {

namespace {

constexpr unsigned kThreads = kDeviceGroupHeadsMax * kScoreLanes;

// Computes C1 over a head.
__device__ float product_of(const uint16_t *query, const uint16_t *key, size_t head_dim) {
    const bool wide = head_dim % 8 == 0;
    float total = 0.0F;
#pragma unroll 1
    for (size_t part = 0; part < head_dim; part += kTerms) {
        float even = 0.0F, odd = 0.0F;
#pragma unroll
        for (size_t term = part; term < part + kTerms; term += 8) {
            if (term >= head_dim) {
                continue; // +0 times +0 changes no sum
            }
            const uint4 a = eight_at(query + term, head_dim - term, wide);
            const uint4 b = eight_at(key + term, head_dim - term, wide);
            const uint32_t left[] = {a.x, a.y, a.z, a.w}, right[] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (unsigned i = 0; i < 4; ++i) {
                even = c2_fma(low_of(left[i]), low_of(right[i]), even);
                odd = c2_fma(high_of(left[i]), high_of(right[i]), odd);
            }
        }
        total = add(total, add(even, odd));
    }
    return total;
}

// Computes the weights, the maximum and the sum of a row, a KV head and a block for each query
// head. Blocks of threads: [block][KV head][row].
__global__ void __launch_bounds__(kThreads) weights_kernel(DeviceReceive task) {
    wait_for_previous();
    __shared__ float scores[kDeviceGroupHeadsMax * kScoreStride];
    const DeviceAttention &attention = task.attention;
    const size_t row = task.row + blockIdx.z;
    const DeviceRow of_row = attention.pass.rows[row];
    const Blocks range = visible_blocks(of_row.position, attention.window);
    if (blockIdx.x >= range.count) {
        return;
    }
    const uint64_t block = range.first + blockIdx.x;
    const Pages pages = pages_of(attention, of_row.sequence);
    const uint16_t *page = pages.page(block);
    const uint64_t visible =
        page == nullptr
            ? 0
            : visible_slots(of_row.position, attention.window, block) & pages.held(block);

    // Scores of all query heads that share the KV head; a slot that is not visible scores 0.
    const auto group_heads = static_cast<unsigned>(attention.heads / attention.kv_heads);
    const size_t first_head = blockIdx.y * group_heads, head_dim = attention.head_dim;
    const uint16_t *query = attention.query + (row * attention.heads + first_head) * head_dim;
    const size_t keys_at = attention.keys_at + blockIdx.y * kSlots * head_dim;
    for (unsigned i = threadIdx.x; i < group_heads * kSlots; i += kThreads) {
        const unsigned head = i / kSlots, slot = i % kSlots;
        scores[head * kScoreStride + slot] =
            (visible >> slot & 1U) != 0
                ? product_of(query + head * head_dim, page + keys_at + slot * head_dim, head_dim)
                : 0.0F;
    }
    __syncthreads();

    // Weights, by the same function as attention itself.
    const unsigned head = threadIdx.x / kScoreLanes, lane = threadIdx.x % kScoreLanes;
    const bool real = head < group_heads; // the others take part in the exchanges
    float *own = scores + head * kScoreStride;
    for (unsigned slot = lane; slot < kSlots && !real; slot += kScoreLanes) {
        own[slot] = 0.0F;
    }
    Least unused;
    const Weighed weighed = weigh(attention, own, real ? visible : 0, lane, unused);
    if (!real) {
        return;
    }

    // Weights go to device memory, for receive_kernel.
    const size_t at =
        (blockIdx.z * attention.heads + first_head + head) * attention.blocks + blockIdx.x;
    for (unsigned slot = lane; slot < kSlots; slot += kScoreLanes) {
        task.weights[at * kSlots + slot] = f32_to_bf16(own[slot]);
    }
    if (lane == 0) {
        attention.maximum[at] = weighed.maximum;
        attention.sum[at] = visible != 0 ? weighed.sum : 0.0F;
    }
}

// The maximum and the sum of the block of a lane; -infinity and 0: no slot is visible.
struct Partial {
    float maximum, sum;
};
__device__ Partial partial_at(const DeviceAttention &attention, size_t at, uint64_t block,
                              uint64_t count) {
    const float sum = block < count ? attention.sum[at + block] : 0.0F;
    return {sum != 0.0F ? attention.maximum[at + block] : -__builtin_inff(), sum};
}

// Adds what 32 blocks of a row give to their positions for one query head. Blocks of threads:
// [head][row][32 blocks].
__global__ void __launch_bounds__(kWarp) receive_kernel(DeviceReceive task) {
    wait_for_previous();
    __shared__ Step steps[kWarp];
    const DeviceAttention &attention = task.attention;
    const Blocks range =
        visible_blocks(attention.pass.rows[task.row + blockIdx.y].position, attention.window);
    const uint64_t begin = uint64_t{blockIdx.z} * kWarp;
    if (begin >= range.count) {
        return;
    }
    const unsigned lane = threadIdx.x;
    const size_t at = (size_t{blockIdx.y} * attention.heads + blockIdx.x) * attention.blocks;
    float maximum = -__builtin_inff(), sum = 0.0F; // over all blocks
// Merges all blocks of the row; each warp repeats this for its own 32 blocks.
#pragma unroll 1
    for (uint64_t chunk = 0; chunk < range.count; chunk += kWarp) {
        const Partial own = partial_at(attention, at, chunk + lane, range.count);
        const Step step = step_of(own.maximum, own.sum, maximum);
        __syncwarp(); // the previous steps have been read
        steps[lane] = step;
        __syncwarp();
        sum = merge_steps(steps, kWarp, sum); // no slot is visible after the last block
    }

    // The share of each block, then the sums of its slots.
    const Partial own = partial_at(attention, at, begin + lane, range.count);
    const double share = own.sum != 0.0F ? share_of(own.maximum, maximum, sum) : 0.0;
    const size_t sum_row = task.sum_rows == 1 ? 0 : task.sum_row + blockIdx.x;
#pragma unroll 1
    for (unsigned i = 0; i < kWarp; ++i) {
        const double of_block = __shfl_sync(kAllLanes, share, static_cast<int>(i));
        if (of_block == 0.0) {
            continue; // no slot is visible, or the block does not exist
        }
        const uint64_t block = begin + i;
        unsigned long long *sums =
            task.sums + ((range.first + block) * task.sum_rows + sum_row) * kSlots;
        for (unsigned slot = lane; slot < kSlots; slot += kWarp) {
            const float p = bf16_to_f32(task.weights[(at + block) * kSlots + slot]);
            const auto received = static_cast<unsigned long long>(received_of(p, of_block));
            if (received != 0) {
                atomicAdd(sums + slot, received);
            }
        }
    }
}

} // namespace

void receive(DeviceQueue *queue, const DeviceReceive &task) {
    const auto heads = static_cast<unsigned>(task.attention.heads);
    const auto kv_heads = static_cast<unsigned>(task.attention.kv_heads);
    const auto rows = static_cast<unsigned>(task.rows);
    const auto blocks = static_cast<unsigned>(task.attention.blocks);
    enqueue(queue, {dim3(blocks, kv_heads, rows), kThreads}, weights_kernel, task);
    enqueue(queue, {dim3(heads, rows, (blocks + kWarp - 1) / kWarp), kWarp}, receive_kernel, task);
}

} // namespace stasis::kernels::device
