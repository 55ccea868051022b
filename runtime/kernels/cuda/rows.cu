// Kernels that take one row at a time: embeddings, the residual stream and its norms (C4), the cap
// of the logits. One block of threads for each row.
#include "runtime/kernels/cuda/functions.h"
#include "runtime/kernels/cuda/kernels.h"
#include "runtime/kernels/cuda/quant.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kLoads = 8; // pending loads of each thread

// Returns 1 / sqrt(mean(x^2) + eps) of a row in shared memory to every thread of the block. `lanes`
// is a workspace of kSumLanes numbers.
__device__ float norm_scale(const float *x, size_t n, float eps, float *lanes) {
    if (threadIdx.x < kSumLanes) {
        const auto whole = static_cast<unsigned>(n / kSumLanes);
        const float *own = x + threadIdx.x;
        float lane = 0.0F;
#pragma unroll 16 // steps wait for each other, loads do not
        for (unsigned i = 0; i < whole; ++i) {
            lane = fma(own[i * kSumLanes], own[i * kSumLanes], lane);
        }
        if (whole * kSumLanes + threadIdx.x < n) {
            lane = fma(own[whole * kSumLanes], own[whole * kSumLanes], lane);
        }
        lanes[threadIdx.x] = lane;
    }
    __syncthreads();
    float own[kSumLanes];
    for (size_t j = 0; j < kSumLanes; ++j) {
        own[j] = lanes[j];
    }
    __syncthreads(); // lanes may be written again
    const float mean = c2_div(sum_lanes(own), static_cast<float>(n));
    return div(1.0F, sqrt(add(mean, eps)));
}

// Calls use(i, x[i]) for each element of this thread. Several loads are pending together, because
// they need not wait for the stores of `use`.
template <typename Use> __device__ void for_each(const float *x, size_t n, const Use &use) {
    for (size_t first = threadIdx.x; first < n; first += kLoads * kThreads) {
        float own[kLoads];
#pragma unroll
        for (unsigned j = 0; j < kLoads; ++j) {
            const size_t i = first + j * kThreads;
            own[j] = i < n ? x[i] : 0.0F;
        }
#pragma unroll
        for (unsigned j = 0; j < kLoads; ++j) {
            const size_t i = first + j * kThreads;
            if (i < n) {
                use(i, own[j]);
            }
        }
    }
}

__global__ void residual_kernel(DeviceResidual task) {
    __shared__ float lanes[kSumLanes];
    float *row = dynamic_shared<float>(); // [hidden]
    const size_t at = blockIdx.x * task.hidden, n = task.hidden;
    ask_for(task.norm, n * sizeof(float), threadIdx.x, kThreads);
    if (task.post_norm != nullptr) {
        ask_for(task.post_norm, n * sizeof(float), threadIdx.x, kThreads);
    }
    wait_for_previous();

    // Adds to the stream, through a further norm if there is one.
    if (task.wide != nullptr) {
        for_each(task.wide + at, n, [&](size_t i, float x) { row[i] = x; });
        __syncthreads();
        if (task.post_norm != nullptr) {
            const float scale = norm_scale(row, n, task.eps, lanes);
            for_each(task.post_norm, n, [&](size_t i, float weight) {
                row[i] = c2_mul(c2_mul(row[i], scale), weight);
            });
        }
        for_each(task.stream + at, n, [&](size_t i, float x) { // the thread's own elements
            row[i] = add(x, row[i]);
            task.stream[at + i] = row[i];
        });
    } else {
        for_each(task.stream + at, n, [&](size_t i, float x) { row[i] = x; });
    }

    // Norms the row.
    __syncthreads();
    const float scale = norm_scale(row, n, task.eps, lanes);
    bool finite = true;
    for_each(task.norm, n, [&](size_t i, float weight) {
        const uint16_t rounded = f32_to_bf16(c2_mul(c2_mul(row[i], scale), weight));
        task.narrow[at + i] = rounded;
        finite = finite && is_finite_bf16(rounded);
    });
    if (task.failed != nullptr && !finite) {
        atomicMin(&task.failed[blockIdx.x], task.layer);
    }
}

__global__ void embed_kernel(DeviceEmbed task) {
    wait_for_previous();
    const size_t from = task.pass.rows[blockIdx.x].token * task.hidden;
    float *stream = task.stream + blockIdx.x * task.hidden;
    for (size_t i = threadIdx.x; i < task.hidden; i += kThreads) {
        const float value =
            task.wide != nullptr ? task.wide[from + i] : bf16_to_f32(task.narrow[from + i]);
        stream[i] = c2_mul(value, task.scale);
    }
}

__global__ void softcap_kernel(float *x, size_t n, float cap) {
    wait_for_previous();
    const size_t i = size_t{blockIdx.x} * kThreads + threadIdx.x;
    if (i < n) {
        x[i] = c2_mul(cap, tanh(c2_div(x[i], cap)));
    }
}

void embed(DeviceQueue *queue, const DeviceEmbed &task) {
    if (task.strips != nullptr) {
        embed_strips(queue, task);
        return;
    }
    enqueue(queue, {static_cast<unsigned>(task.pass.row_count), kThreads}, embed_kernel, task);
}

void residual(DeviceQueue *queue, const DeviceResidual &task) {
    enqueue(queue, {static_cast<unsigned>(task.rows), kThreads, task.hidden * sizeof(float)},
            residual_kernel, task);
}

void softcap(DeviceQueue *queue, float *x, size_t n, float cap) {
    enqueue(queue, {static_cast<unsigned>((n + kThreads - 1) / kThreads), kThreads}, softcap_kernel,
            x, n, cap);
}

} // namespace

void add_rows(DeviceTable &table) {
    table.embed = embed;
    table.residual = residual;
    table.softcap = softcap;
}

} // namespace stasis::kernels::device
