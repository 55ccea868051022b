// Attention of few rows, over contexts of any length (C5). A block of threads takes a row, a KV
// head and a page: keys and values go from memory into registers once for all query heads that
// share them. Then a warp merges 32 columns of a row and head in ascending order of pages.
#include "runtime/kernels/cuda/attention.h"
#include "runtime/kernels/cuda/kernels.h"

namespace stasis::kernels::device {

namespace {

// So many that each takes few query heads: the time is that of one thread's chains.
constexpr unsigned kThreads = 512;
constexpr unsigned kHeadsMax = kThreads / kWarp; // query heads that share a KV head, a warp each
static_assert(kHeadsMax == kDeviceGroupHeadsMax);
// Numbers between the parts of a query for different blocks of the rule.
constexpr unsigned kQueryStride = kTerms + 4;

__host__ __device__ constexpr unsigned terms_blocks(size_t head_dim) {
    return static_cast<unsigned>((head_dim + kTerms - 1) / kTerms);
}

size_t shared_bytes(size_t group_heads, size_t head_dim) {
    const size_t parts = group_heads * terms_blocks(head_dim);
    return (parts * (kQueryStride + kScoreStride) + kHeadsMax * kScoreStride) * sizeof(float);
}

// Computes a block of the rule for two outputs: 32 terms of each with 32 numbers in shared memory.
template <bool kTiny> __device__ float2 multiply(const float *a, const float (&b)[2][kTerms]) {
    float even[2] = {}, odd[2] = {};
#pragma unroll
    for (unsigned k = 0; k < kTerms; k += 4) {
        const float4 four = *reinterpret_cast<const float4 *>(a + k);
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
            even[i] = chain<kTiny>(four.x, b[i][k], even[i]);
            odd[i] = chain<kTiny>(four.y, b[i][k + 1], odd[i]);
            even[i] = chain<kTiny>(four.z, b[i][k + 2], even[i]);
            odd[i] = chain<kTiny>(four.w, b[i][k + 3], odd[i]);
        }
    }
    return {add(even[0], odd[0]), add(even[1], odd[1])};
}

// A row, its queries that share a KV head, and one visible page.
struct Page {
    const DeviceAttention &task;
    const unsigned group_heads, parts; // blocks of the rule along a head
    const size_t row, kv_head;
    const uint64_t visible;
    float *query; // [group_heads][parts][kQueryStride]
    // [group_heads][parts][kScoreStride] products with keys; later [group_heads][2][head_dim]
    // products with values.
    float *sums;
    float *weights;                       // [kHeadsMax][kScoreStride]
    uint32_t *least_query, *least_weight; // keys of Least

    // Returns the index of a query head's partial results.
    __device__ size_t head_at(unsigned head) const {
        return row * task.heads + kv_head * group_heads + head;
    }

    __device__ void stage_query() const {
        const uint16_t *from = task.query + head_at(0) * task.head_dim;
        const unsigned terms = parts * kTerms;
        Least least;
        for (unsigned i = threadIdx.x; i < group_heads * terms; i += kThreads) {
            const unsigned head = i / terms, term = i % terms;
            float x = 0.0F;
            if (term < task.head_dim) {
                x = bf16_to_f32(from[head * task.head_dim + term]);
                least.add(x);
            }
            query[(head * parts + term / kTerms) * kQueryStride + term % kTerms] = x;
        }
        add_of_warp(least_query, least);
    }

    // Each thread multiplies 32 terms of two keys with one query, or with several if there are more
    // than threads.
    __device__ void multiply_keys(const uint16_t *keys) const {
        constexpr unsigned kPairs = kSlots / 2;
        const unsigned item = threadIdx.x % (parts * kPairs), at = threadIdx.x / (parts * kPairs);
        const unsigned together = kThreads / (parts * kPairs);
        if (at >= together) {
            return;
        }
        const unsigned part = item % parts, slot = item / parts;
        float key[2][kTerms];
        const Least least = load_keys(keys, part, slot, key);
        // The exponents of all queries and of these keys decide whether plain arithmetic is
        // enough.
        const bool tiny = Least{*least_query}.exponent() + least.exponent() < kSafeExponents;
#pragma unroll 1
        for (unsigned head = at; head < group_heads; head += together) {
            const float *own = query + (head * parts + part) * kQueryStride;
            const float2 sum = tiny ? multiply<true>(own, key) : multiply<false>(own, key);
            float *to = sums + (head * parts + part) * kScoreStride + slot;
            to[0] = sum.x, to[kPairs] = sum.y;
        }
    }

    // Loads the terms of keys `slot` and slot + 32; those that are not visible count as +0.
    __device__ Least load_keys(const uint16_t *keys, unsigned part, unsigned slot,
                               float (&key)[2][kTerms]) const {
        const bool wide = task.head_dim % 8 == 0;
        Least least;
#pragma unroll
        for (unsigned i = 0; i < 2; ++i) {
            const bool seen = (visible >> (slot + kSlots / 2 * i) & 1U) != 0;
#pragma unroll
            for (unsigned k = 0; k < kTerms; k += 8) {
                const size_t term = part * kTerms + k;
                uint4 eight = {0, 0, 0, 0};
                if (seen && term < task.head_dim) {
                    eight = eight_at(keys + (slot + kSlots / 2 * i) * task.head_dim + term,
                                     task.head_dim - term, wide);
                }
                const uint32_t pairs[] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
                for (unsigned j = 0; j < 4; ++j) {
                    least.add(key[i][k + 2 * j] = low_of(pairs[j]));
                    least.add(key[i][k + 2 * j + 1] = high_of(pairs[j]));
                }
            }
        }
        return least;
    }

    // A warp works on each head, two slots a lane.
    __device__ void weigh_scores(size_t index) const {
        const unsigned head = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
        if (head >= group_heads) {
            return;
        }
        float score[2] = {}, maximum = -__builtin_inff();
        bool seen[2];
#pragma unroll
        for (unsigned j = 0; j < 2; ++j) {
            const unsigned slot = lane + kWarp * j;
#pragma unroll 4
            for (unsigned part = 0; part < parts; ++part) {
                score[j] = add(score[j], sums[(head * parts + part) * kScoreStride + slot]);
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
        Least least;
#pragma unroll
        for (unsigned j = 0; j < 2; ++j) {
            p[j] = seen[j] ? weight_of(score[j], maximum) : 0.0F;
            weights[head * kScoreStride + lane + kWarp * j] = p[j];
            least.add(p[j]);
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
        add_of_warp(least_weight, least);
    }

    // Each thread multiplies 32 slots of two columns with the weights of one query, or of several.
    __device__ void multiply_values(const uint16_t *values) const {
        const auto pairs = static_cast<unsigned>(task.head_dim / 2);
        const unsigned together = kThreads / (2 * pairs), at = threadIdx.x / (2 * pairs);
        if (at >= together) {
            return;
        }
        const unsigned item = threadIdx.x % (2 * pairs);
        const unsigned half = item / pairs, column = item % pairs * 2;
        float value[2][kTerms];
        Least least;
#pragma unroll
        for (unsigned k = 0; k < kTerms; ++k) {
            const unsigned slot = half * kTerms + k;
            const uint32_t pair =
                (visible >> slot & 1U) != 0 ? pair_at(values + slot * task.head_dim + column) : 0;
            least.add(value[0][k] = low_of(pair));
            least.add(value[1][k] = high_of(pair));
        }
        const bool tiny = Least{*least_weight}.exponent() + least.exponent() < kSafeExponents;
#pragma unroll 1
        for (unsigned head = at; head < group_heads; head += together) {
            const float *p = weights + head * kScoreStride + half * kTerms;
            float *to = sums + (head * 2 + half) * task.head_dim + column;
            *reinterpret_cast<float2 *>(to) =
                tiny ? multiply<true>(p, value) : multiply<false>(p, value);
        }
    }

    __device__ void store(size_t index) const {
        const auto columns = static_cast<unsigned>(task.head_dim);
        for (unsigned i = threadIdx.x; i < group_heads * columns; i += kThreads) {
            const unsigned head = i / columns, column = i % columns;
            const float *of_head = sums + head * 2 * columns;
            const float sum = add(of_head[column], of_head[columns + column]);
            task.partial[(head_at(head) * task.blocks + index) * columns + column] =
                add(sum, 0.0F); // a zero becomes +0
        }
    }
};

__global__ void __launch_bounds__(kThreads, 1) block_kernel(DeviceAttention task) {
    __shared__ uint32_t least[2];
    const DeviceRow row = task.pass.rows[blockIdx.z];
    const Blocks range = visible_blocks(row.position, task.window);
    // Only data that no other work writes is read before the wait: the pass's description.
    const size_t index = blockIdx.x, head = blockIdx.y * kSlots * task.head_dim;
    const uint64_t block = range.first + index;
    const uint16_t *page = nullptr;
    uint64_t visible = 0;
    if (index < range.count) {
        const Pages pages = pages_of(task, row.sequence);
        page = pages.page(block);
        visible = visible_slots(row.position, task.window, block) & pages.held(block);
    }
    // A prefetch before the wait does not hide what the previous kernel writes.
    if (page != nullptr && visible != 0) {
        const size_t size_bytes = kSlots * task.head_dim * sizeof(uint16_t);
        ask_for(page + task.keys_at + head, size_bytes, threadIdx.x, kThreads);
        ask_for(page + task.values_at + head, size_bytes, threadIdx.x, kThreads);
    }
    wait_for_previous();
    if (index >= range.count) {
        return;
    }

    // A block that the row does not see is marked by a sum of 0.
    const auto group_heads = static_cast<unsigned>(task.heads / task.kv_heads);
    if (page == nullptr || visible == 0) {
        if (threadIdx.x < group_heads) {
            const size_t at = blockIdx.z * task.heads + blockIdx.y * group_heads + threadIdx.x;
            task.sum[at * task.blocks + index] = 0.0F;
        }
        return;
    }

    // Shared memory: queries, products and weights, one after the other.
    const unsigned parts = terms_blocks(task.head_dim);
    auto *query = dynamic_shared<float>();
    float *sums = query + group_heads * parts * kQueryStride;
    float *weights = sums + group_heads * parts * kScoreStride;
    const Page work{task,  group_heads, parts,   blockIdx.z, blockIdx.y, visible,
                    query, sums,        weights, &least[0],  &least[1]};

    // Each step needs what all threads stored in the one before.
    if (threadIdx.x < 2) {
        least[threadIdx.x] = 0xFFFFFFFFU;
    }
    __syncthreads();
    work.stage_query();
    __syncthreads();
    work.multiply_keys(page + task.keys_at + head);
    __syncthreads();
    work.weigh_scores(index);
    __syncthreads();
    work.multiply_values(page + task.values_at + head);
    __syncthreads();
    work.store(index);
}

// --- Merging. ---

constexpr unsigned kTogether = 8; // blocks loaded together: a short context has fewer than 32

__device__ unsigned blocks_of_chunk(uint64_t blocks) {
    return blocks < kWarp ? static_cast<unsigned>(blocks) : kWarp;
}

// 32 blocks of a row and head: lane i has the maximum and the sum of block i, and one column of all
// of them.
struct Chunk {
    float maximum, sum; // sum 0: no slot is visible
    float partial[kWarp];
};

// Loads the first `count` of 32 blocks from `begin` on.
__device__ Chunk load(const DeviceAttention &task, size_t head, uint64_t begin, unsigned count,
                      size_t column) {
    const unsigned lane = threadIdx.x;
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
template <bool kTiny>
__device__ float merge(const Step *steps, const float (&partial)[kWarp], unsigned count, float o,
                       bool &tiny) {
#pragma unroll
    for (unsigned i = 0; i < kWarp; ++i) {
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

__global__ void __launch_bounds__(kWarp) merge_kernel(DeviceAttention task) {
    __shared__ Step steps[kWarp];
    const size_t head = size_t{blockIdx.y} * task.heads + blockIdx.x;
    const size_t column = blockIdx.z * kWarp + threadIdx.x;
    const uint64_t count = visible_blocks(task.pass.rows[blockIdx.y].position, task.window).count;
    wait_for_previous();
    // The next chunk is loaded while the present one is merged.
    float maximum = -__builtin_inff(), sum = 0.0F, o = 0.0F;
    unsigned here = blocks_of_chunk(count);
    Chunk chunk = load(task, head, 0, here, column);
#pragma unroll 1
    for (uint64_t begin = 0; begin < count; begin += kWarp) {
        const Step own = step_of(chunk.maximum, chunk.sum, maximum);
        __syncwarp(); // the previous steps have been read
        steps[threadIdx.x] = own;
        __syncwarp();
        const unsigned there = blocks_of_chunk(count - begin - here);
        Chunk next = {};
        if (there > 0) {
            // Completes while this chunk is merged.
            next = load(task, head, begin + kWarp, there, column);
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

} // namespace

void attend_blocks(DeviceQueue *queue, const DeviceAttention &task) {
    const auto rows = static_cast<unsigned>(task.pass.row_count);
    const auto columns = static_cast<unsigned>(task.head_dim);
    const size_t group_heads = task.heads / task.kv_heads;
    enqueue(queue,
            {dim3(static_cast<unsigned>(task.blocks), static_cast<unsigned>(task.kv_heads), rows),
             kThreads, shared_bytes(group_heads, task.head_dim)},
            block_kernel, task);
    enqueue(queue,
            {dim3(static_cast<unsigned>(task.heads), rows, (columns + kWarp - 1) / kWarp), kWarp},
            merge_kernel, task);
}

void add_attention(DeviceTable &table) {
    table.attend_blocks = attend_blocks;
    table.attend_tiles = attend_tiles;
    table.receive = receive;
}

} // namespace stasis::kernels::device
