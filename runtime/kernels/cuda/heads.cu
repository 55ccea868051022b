// Finishes queries, keys and values of one layer (C3, C4, C6): norm, RoPE, rounding; keys and
// values go into their pages. One warp for each head of each row, because a head is small and its
// chains are short.
#include "runtime/kernels/cuda/functions.h"
#include "runtime/kernels/cuda/kernels.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kWarps = 4; // heads of a block, which are independent

// Copies a head to shared memory. Interleaved pairs are separated: one element at i, the other at i
// + n / 2.
__device__ void fetch(const float *from, size_t n, bool interleaved, float *x) {
    const unsigned lane = threadIdx.x % kWarp;
    for (size_t i = lane; i < n; i += kWarp) {
        x[interleaved ? i / 2 + i % 2 * (n / 2) : i] = from[i];
    }
    __syncwarp();
}

// Returns 1 / sqrt(mean(x^2) + eps) to every lane. Both halves of the warp compute the same. The
// terms of a sum may be exchanged, so after each step of the tree all lanes hold its result.
__device__ float norm_scale(const float *x, size_t n, float eps) {
    float sum = 0.0F;
    for (size_t i = threadIdx.x % kSumLanes; i < n; i += kSumLanes) {
        sum = fma(x[i], x[i], sum);
    }
    for (unsigned half = kSumLanes / 2; half > 0; half /= 2) {
        sum = add(sum, __shfl_xor_sync(kAllLanes, sum, static_cast<int>(half)));
    }
    return div(1.0F, sqrt(add(c2_div(sum, static_cast<float>(n)), eps)));
}

// Applies the norm (if there is one), RoPE and rounding to the head in x. Returns whether the
// lane's part of it is finite.
__device__ bool finish(const float *x, size_t n, float eps, const float *norm, const float *cosine,
                       const float *sine, uint16_t *rounded) {
    const float scale = norm == nullptr ? 1.0F : norm_scale(x, n, eps);
    const size_t half = n / 2;
    bool finite = true;
    for (size_t i = threadIdx.x % kWarp; i < half; i += kWarp) {
        float a = x[i], b = x[i + half];
        if (norm != nullptr) {
            a = c2_mul(c2_mul(a, scale), norm[i]);
            b = c2_mul(c2_mul(b, scale), norm[i + half]);
        }
        const float c = cosine[i], s = sine[i];
        const uint16_t first = f32_to_bf16(c2_fma(a, c, -c2_mul(b, s)));
        const uint16_t second = f32_to_bf16(c2_fma(b, c, c2_mul(a, s)));
        rounded[i] = first;
        rounded[i + half] = second;
        finite = finite && is_finite_bf16(first) && is_finite_bf16(second);
    }
    return finite;
}

// Blocks are (row, four heads): heads of the queries, then of the keys, then of the values.
__global__ void __launch_bounds__(kWarps *kWarp) heads_kernel(DeviceHeads task) {
    const size_t n = task.head_dim, index = blockIdx.x;
    const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    size_t head = size_t{blockIdx.y} * kWarps + warp;
    float *x = dynamic_shared<float>() + warp * n; // [head_dim]
    // Only the pass's description and RoPE tables are used before the wait.
    const DeviceRow row = task.pass.rows[index];
    const DevicePages own =
        task.pass.sequences[task.group * task.pass.sequence_count + row.sequence];
    uint16_t *page = task.pass.pages[own.at + (row.position / kPagePositions - own.first)];
    const float *cosine = task.cosine + row.position * (n / 2);
    const float *sine = task.sine + row.position * (n / 2);
    ask_for(cosine, n / 2 * sizeof(float), lane, kWarp);
    ask_for(sine, n / 2 * sizeof(float), lane, kWarp);
    wait_for_previous();
    if (head >= task.heads + 2 * task.kv_heads) {
        return;
    }
    // A query stays in its row; keys and values go to the page.
    if (head < task.heads) {
        const size_t at = (index * task.heads + head) * n;
        fetch(task.query + at, n, task.interleaved, x);
        finish(x, n, task.eps, task.query_norm, cosine, sine, task.rounded + at);
        return;
    }
    head -= task.heads;
    const size_t slot = row.position % kPagePositions;
    bool finite = true;
    if (head < task.kv_heads) {
        const float *key = task.key + (index * task.kv_heads + head) * n;
        uint16_t *place = page + task.keys_at + (head * kPagePositions + slot) * n;
        fetch(key, n, task.interleaved, x);
        finite = finish(x, n, task.eps, task.key_norm, cosine, sine, place);
    } else {
        head -= task.kv_heads;
        const float *value = task.value + (index * task.kv_heads + head) * n;
        uint16_t *place = page + task.values_at + (head * kPagePositions + slot) * n;
        for (size_t i = lane; i < n; i += kWarp) {
            place[i] = f32_to_bf16(value[i]);
            finite = finite && is_finite_bf16(place[i]);
        }
    }
    if (!finite) {
        atomicMin(&task.pass.failed[index], task.layer);
    }
}

void heads(DeviceQueue *queue, const DeviceHeads &task) {
    const size_t all = task.heads + 2 * task.kv_heads;
    const dim3 blocks(static_cast<unsigned>(task.pass.row_count),
                      static_cast<unsigned>((all + kWarps - 1) / kWarps));
    enqueue(queue, {blocks, kWarps * kWarp, kWarps * task.head_dim * sizeof(float)}, heads_kernel,
            task);
}

} // namespace

void add_heads(DeviceTable &table) {
    table.heads = heads;
}

} // namespace stasis::kernels::device
