// Matrix products in the module's table: chooses the kernel of a product, measures weights, and
// applies the activation of gated products that were computed by tiles.
#include "runtime/kernels/cuda/kernels.h"
#include "runtime/kernels/cuda/product.h"
#include "runtime/kernels/cuda/quant.h"

namespace stasis::kernels::device {

namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarp;
// Elements that a thread activates. 512 x 5632 take 11 us on an H200, 16 with one.
constexpr unsigned kActivated = 4;
// Fewer tiles leave more than half of a large device idle. Then streaming for each 8 rows should be
// faster: on 132 multiprocessors some 3 us for 8 rows of 2048 x 2048, where a tile takes some 28
// (estimated, not measured).
constexpr size_t kFewTiles = 64;

// One warp measures one row.
__global__ void measure_kernel(const uint16_t *w, size_t outputs, size_t depth, uint32_t *least) {
    wait_for_previous();
    const size_t output = size_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
    if (output >= outputs) {
        return;
    }
    uint32_t own = kNoExponent;
    for (size_t k = threadIdx.x % kWarp; k < depth; k += kWarp) {
        const uint32_t exponent = exponent_of(w[output * depth + k]);
        own = exponent < own ? exponent : own;
    }
    own = __reduce_min_sync(kAllLanes, own);
    if (threadIdx.x % kWarp == 0) {
        least[output] = own;
    }
}

__global__ void activate_kernel(const float *gate, const float *up, size_t n, Activation activation,
                                uint16_t *y) {
    wait_for_previous();
    const size_t first = size_t{blockIdx.x} * kActivated * kThreads + threadIdx.x;
    float own_gate[kActivated], own_up[kActivated];
#pragma unroll
    for (unsigned j = 0; j < kActivated; ++j) { // loads do not wait for each other
        const size_t i = first + size_t{j} * kThreads;
        own_gate[j] = i < n ? gate[i] : 0.0F, own_up[j] = i < n ? up[i] : 0.0F;
    }
#pragma unroll
    for (unsigned j = 0; j < kActivated; ++j) {
        const size_t i = first + size_t{j} * kThreads;
        if (i < n) {
            y[i] = activate(own_gate[j], own_up[j], activation);
        }
    }
}

void measure(DeviceQueue *queue, const uint16_t *w, size_t outputs, size_t depth, uint32_t *least) {
    const auto blocks = static_cast<unsigned>(divide_up(outputs, kWarps));
    enqueue(queue, {blocks, kThreads, 0, true}, measure_kernel, w, outputs, depth, least);
}

bool has_few_rows(const DeviceProduct &task) {
    return task.rows <= 8 || count_tiles(task) < kFewTiles;
}

void bf16_product(DeviceQueue *queue, const DeviceProduct &task) {
    if (task.pinned) {
        pinned_product(queue, task);
    } else if (!has_few_rows(task) || !few_rows(queue, task)) {
        tiles(queue, task);
    }
}

// Computes matrices of values and matrices of integers by separate kernels.
void product(DeviceQueue *queue, const DeviceProduct &task) {
    DeviceProduct values = task, integers = task;
    values.count = integers.count = 0;
    for (size_t i = 0; i < task.count; ++i) {
        DeviceProduct &to = task.w[i].strips != nullptr ? integers : values;
        to.w[to.count] = task.w[i];
        to.y[to.count++] = task.y[i];
    }
    if (integers.count != 0) {
        integer_products(queue, integers);
    }
    if (values.count != 0) {
        bf16_product(queue, values);
    }
}

void gated_product(DeviceQueue *queue, const DeviceGatedProduct &task) {
    DeviceProduct both = {task.x, task.rows, 2, {task.gate, task.up}, {task.gate_y, task.up_y}};
    const bool gate = task.gate.strips != nullptr, up = task.up.strips != nullptr;
    if (gate && up) {
        integer_products(queue, task);
        return;
    }
    if (gate || up) {
        both.pinned = task.pinned;
        both.quantized[0] = task.quantized[0], both.quantized[1] = task.quantized[1];
        product(queue, both);
    } else if (task.pinned) {
        pinned_product(queue, both);
    } else if (has_few_rows(both) && few_rows(queue, task)) {
        return;
    } else {
        tiles(queue, both);
    }
    const size_t n = task.rows * task.gate.outputs;
    enqueue(queue, {static_cast<unsigned>(divide_up(n, kActivated * kThreads)), kThreads},
            activate_kernel, task.gate_y, task.up_y, n, task.activation, task.y);
}

} // namespace

void add_products(DeviceTable &table) {
    table.measure = measure;
    table.product = product;
    table.gated_product = gated_product;
}

} // namespace stasis::kernels::device
