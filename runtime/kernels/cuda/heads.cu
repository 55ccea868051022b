// Finishes queries, keys and values of one layer (C3, C4, C6): norm, RoPE, rounding; keys and
// values go into their pages. One warp for each head of each row, because a head is small and its
// chains are short.
#include "runtime/kernels/cuda/heads.h"
#include "runtime/kernels/cuda/kernels.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kWarps = 4; // heads of a block, which are independent

// Blocks are (row, four heads): heads of the queries, then of the keys, then of the values.
__global__ void __launch_bounds__(kWarps *kWarp) heads_kernel(DeviceHeads task) {
    const auto n = static_cast<unsigned>(task.head_dim);
    const size_t index = blockIdx.x;
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
        uint16_t *place = task.rounded + at;
        fetch_head(task.query + at, n, task.interleaved, x);
        finish_head(x, n, task.eps, task.query_norm, cosine, sine,
                    [&](unsigned i, uint16_t rounded) { place[i] = rounded; });
        return;
    }
    head -= task.heads;
    const size_t slot = row.position % kPagePositions;
    bool finite = true;
    if (head < task.kv_heads) {
        const float *key = task.key + (index * task.kv_heads + head) * n;
        uint16_t *place = page + task.keys_at + (head * kPagePositions + slot) * n;
        fetch_head(key, n, task.interleaved, x);
        finite = finish_head(x, n, task.eps, task.key_norm, cosine, sine,
                             [&](unsigned i, uint16_t rounded) { place[i] = rounded; });
    } else {
        head -= task.kv_heads;
        const float *value = task.value + (index * task.kv_heads + head) * n;
        uint16_t *place = page + task.values_at + (head * kPagePositions + slot) * n;
        for (unsigned i = lane; i < n; i += kWarp) {
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
