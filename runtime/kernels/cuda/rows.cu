// Kernels that take one row at a time: embeddings, the residual stream and its norms (C4), the cap
// of the logits. One block of threads for each row.
#include "runtime/kernels/cuda/functions.h"
#include "runtime/kernels/cuda/kernels.h"
#include "runtime/kernels/cuda/quant.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kFewRows = 16, kThreadsOfFew = 512; // rows that leave most of the device idle
constexpr unsigned kLoads = 8;                         // pending loads of each thread

// The 16 chains of a row's sum of squares (C4), by as many lanes. Loads run one batch ahead,
// because steps of a chain wait for each other.
__device__ float sum_squares(const float *x, size_t n) {
    constexpr unsigned kBatch = 16;
    const float *own = x + threadIdx.x;
    const auto whole = static_cast<unsigned>(n / kSumLanes);
    float lane = 0.0F, next[kBatch];
    const auto load = [&](unsigned first) {
#pragma unroll
        for (unsigned i = 0; i < kBatch; ++i) {
            next[i] = first + i < whole ? own[(first + i) * kSumLanes] : 0.0F;
        }
    };
    load(0);
    unsigned first = 0;
    for (; first + kBatch <= whole; first += kBatch) {
        float now[kBatch];
#pragma unroll
        for (unsigned i = 0; i < kBatch; ++i) {
            now[i] = next[i];
        }
        load(first + kBatch);
#pragma unroll
        for (unsigned i = 0; i < kBatch; ++i) {
            lane = fma(now[i], now[i], lane);
        }
    }
    for (; first < whole; ++first) {
        lane = fma(own[first * kSumLanes], own[first * kSumLanes], lane);
    }
    if (whole * kSumLanes + threadIdx.x < n) {
        lane = fma(own[whole * kSumLanes], own[whole * kSumLanes], lane);
    }
    return lane;
}

// Returns 1 / sqrt(mean(x^2) + eps) of a row in shared memory to every thread of the block. `lanes`
// is a workspace of kSumLanes numbers, used once.
__device__ float norm_scale(const float *x, size_t n, float eps, float *lanes) {
    __syncthreads();
    if (threadIdx.x < kSumLanes) {
        lanes[threadIdx.x] = sum_squares(x, n);
    }
    __syncthreads();
    float own[kSumLanes];
    for (size_t j = 0; j < kSumLanes; ++j) {
        own[j] = lanes[j];
    }
    const float mean = c2_div(sum_lanes(own), static_cast<float>(n));
    return div(1.0F, sqrt(add(mean, eps)));
}

// Loads elements threadIdx.x + first, + kThreads + first, ... of x; all are pending together. The
// loads bypass the first-level cache, because the previous kernel may write x after this one began.
template <unsigned kThreads>
__device__ void load(const float *x, size_t n, size_t first, float (&own)[kLoads]) {
#pragma unroll
    for (unsigned j = 0; j < kLoads; ++j) {
        const size_t i = first + threadIdx.x + j * kThreads;
        own[j] = i < n ? __ldcg(x + i) : 0.0F;
    }
}

// Calls use(i, j) for each of these elements that exists.
template <unsigned kThreads, typename Use>
__device__ void for_each(size_t n, size_t first, const Use &use) {
#pragma unroll
    for (unsigned j = 0; j < kLoads; ++j) {
        const size_t i = first + threadIdx.x + j * kThreads;
        if (i < n) {
            use(i, j);
        }
    }
}

// The stream with what is added to it, through a further norm if there is one, in `row` (shared
// memory).
template <unsigned kThreads>
__device__ void add_to_stream(const DeviceResidual &task, size_t at, float *row, float *lanes) {
    constexpr size_t kStep = size_t{kLoads} * kThreads;
    const size_t n = task.hidden;
    float stream[kLoads], other[kLoads];
    if (task.wide == nullptr) {
        for (size_t first = 0; first < n; first += kStep) {
            load<kThreads>(task.stream + at, n, first, stream);
            for_each<kThreads>(n, first, [&](size_t i, unsigned j) { row[i] = stream[j]; });
        }
        return;
    }
    float scale = 0.0F;
    if (task.post_norm != nullptr) {
        for (size_t first = 0; first < n; first += kStep) {
            load<kThreads>(task.wide + at, n, first, other);
            for_each<kThreads>(n, first, [&](size_t i, unsigned j) { row[i] = other[j]; });
        }
        scale = norm_scale(row, n, task.eps, lanes);
    }
    for (size_t first = 0; first < n; first += kStep) {
        load<kThreads>(task.stream + at, n, first, stream);
        load<kThreads>(task.post_norm != nullptr ? task.post_norm : task.wide + at, n, first,
                       other);
        for_each<kThreads>(n, first, [&](size_t i, unsigned j) {
            const float added =
                task.post_norm != nullptr ? c2_mul(c2_mul(row[i], scale), other[j]) : other[j];
            row[i] = add(stream[j], added); // the thread's own elements
            task.stream[at + i] = row[i];
        });
    }
}

template <unsigned kThreads>
__global__ void __launch_bounds__(kThreads) residual_kernel(DeviceResidual task) {
    __shared__ float lanes[2][kSumLanes];
    float *row = dynamic_shared<float>(); // [hidden]
    const size_t at = blockIdx.x * task.hidden, n = task.hidden;
    if (task.post_norm != nullptr) {
        ask_for(task.post_norm, n * sizeof(float), threadIdx.x, kThreads);
    }
    float weight[kLoads]; // the first ones; most models have no others
    load<kThreads>(task.norm, n, 0, weight);
    wait_for_previous();
    add_to_stream<kThreads>(task, at, row, lanes[0]);

    // Norms the row.
    const float scale = norm_scale(row, n, task.eps, lanes[1]);
    bool finite = true;
    for (size_t first = 0; first < n; first += size_t{kLoads} * kThreads) {
        if (first != 0) {
            load<kThreads>(task.norm, n, first, weight);
        }
        for_each<kThreads>(n, first, [&](size_t i, unsigned j) {
            const uint16_t rounded = f32_to_bf16(c2_mul(c2_mul(row[i], scale), weight[j]));
            task.narrow[at + i] = rounded;
            finite = finite && is_finite_bf16(rounded);
        });
    }
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
    const bool few = task.rows <= kFewRows;
    enqueue(queue,
            {static_cast<unsigned>(task.rows), few ? kThreadsOfFew : kThreads,
             task.hidden * sizeof(float)},
            few ? residual_kernel<kThreadsOfFew> : residual_kernel<kThreads>, task);
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
