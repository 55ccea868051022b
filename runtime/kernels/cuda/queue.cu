// Queues of a CUDA device, which are streams that store their first error, and recorded work, which
// is a graph.
//
// Kernels of a queue overlap if the device supports it (programmatic dependent launch, CUDA's
// programming guide; compute capability 9.0). A kernel launched in this way may begin once every
// block of the previous kernel has called `wait_for_previous` (grid.h), at its start, or has ended.
// Its threads then wait until that kernel has ended and its writes are visible. This is correct
// because of:
//
// - Order. By induction, "kernel N has ended" implies that all work enqueued before N has. A kernel
//   launched without the attribute starts after all of that work. One launched with it follows a
//   kernel N - 1 of this module, and cannot end before its threads have waited for N - 1. So after
//   its wait a kernel may access memory as if kernels ran one by one; no running kernel can still
//   read what it writes. A library's kernel waits for nothing by itself, so it is launched without
//   the attribute. So is a kernel after it, or after a copy, a clear, or recorded work, because
//   these are no kernels of this module and promise nothing.
// - Data read before the wait: weights, their measures, and a pass's description of its rows and
//   pages. A copy writes them, or a kernel that is marked (`read_early`: the measure of weights; a
//   draw, which advances its row), and the kernel after either is launched without the attribute. A
//   kernel after that one begins even later. So does the attention of single rows
//   (attention_blocks.cu), which reads pages early: of what it sees earlier passes have written all
//   but the row's own slot, and a copy or the end of recorded work comes between two passes.
// - No deadlock. Blocks that wait occupy the device, but a kernel's blocks begin only when all
//   blocks of the previous kernel have. None of these is kept out, and the first kernel waits for
//   nothing.
// - Recorded work: capture makes the edge between two such kernels a programmatic one (CUDA 12.3;
//   under an older driver kernels do not overlap). The first kernel of a graph, and a kernel after
//   a played graph, are launched without the attribute. So the row that a draw writes is complete
//   when the next graph's first kernel begins.
// - `finish` waits for the last work enqueued, hence for all of it, and memory is released after
//   it.
//
// The gain: a kernel lets the next one begin before it waits itself, so that several kernels are
// resident, as far as they fit. The next products' weights stream into shared memory while the
// short kernels between products run, which alone leave the memory idle. On an H100 a 1.1B model
// decodes 711 tokens/s, 586 without; eight and more kernels were resident together. On older
// devices each kernel starts when the previous one has ended.
#include <new>

#include "runtime/kernels/cuda/driver.h"

namespace stasis::kernels::device {

namespace {

void note(DeviceQueue *queue, cudaError_t code, const char *call) {
    passed(queue->device, code, call, &queue->error);
}

DeviceQueue *create_queue(Device *device, DeviceError *error) {
    const CallersContext callers;
    DeviceQueue *queue = new (std::nothrow) DeviceQueue;
    if (queue == nullptr) {
        tell(error, DeviceError::no_memory, "out of memory");
        return nullptr;
    }
    queue->device = device;
    if (!enter(device, error) ||
        !passed(device, cudaStreamCreateWithFlags(&queue->stream, cudaStreamNonBlocking),
                "cudaStreamCreate", error)) {
        delete queue;
        return nullptr;
    }
    return queue;
}

void destroy_queue(DeviceQueue *queue) {
    const CallersContext callers;
    cudaSetDevice(queue->device->index);
    if (queue->workspace != nullptr) { // the queue's work uses it
        cudaStreamSynchronize(queue->stream);
        release(queue->device, queue->workspace);
    }
    cudaStreamDestroy(queue->stream); // after its work is done
    cudaGetLastError();
    delete queue;
}

void copy(DeviceQueue *queue, void *to, const void *from, size_t size_bytes) {
    const CallersContext callers;
    if (size_bytes > 0 && ready(queue)) {
        queue->next_overlaps = false;
        note(queue, cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, queue->stream),
             "cudaMemcpyAsync");
    }
}

void clear(DeviceQueue *queue, void *memory, size_t rows, size_t row_bytes, size_t from_bytes) {
    const CallersContext callers;
    const size_t width_bytes = row_bytes - from_bytes;
    if (rows > 0 && width_bytes > 0 && ready(queue)) {
        queue->next_overlaps = false;
        auto *begin = static_cast<unsigned char *>(memory) + from_bytes;
        note(queue,
             rows == 1 ? cudaMemsetAsync(begin, 0, width_bytes, queue->stream)
                       : cudaMemset2DAsync(begin, row_bytes, 0, width_bytes, rows, queue->stream),
             "clearing memory");
    }
}

// Moves the queue's error to `error`, if there is one. Returns true if there is none.
bool hand_over(DeviceQueue *queue, DeviceError *error) {
    if (queue->error.kind == DeviceError::none) {
        return true;
    }
    *error = queue->error;
    if (error->kind != DeviceError::lost) {
        queue->error = {};
    }
    return false;
}

bool finish(DeviceQueue *queue, DeviceError *error) {
    const CallersContext callers;
    DeviceError now; // waits in any case, because work enqueued before an error still runs
    if (enter(queue->device, &now)) {
        passed(queue->device, cudaStreamSynchronize(queue->stream), "cudaStreamSynchronize", &now);
    }
    if (queue->error.kind == DeviceError::none || now.kind == DeviceError::lost) {
        queue->error = now;
    }
    return hand_over(queue, error);
}

void begin_recording(DeviceQueue *queue) {
    const CallersContext callers;
    queue->next_overlaps = false;
    if (ready(queue)) { // relaxed: other threads, and this one, may allocate meanwhile
        note(queue, cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeRelaxed),
             "cudaStreamBeginCapture");
    }
}

DeviceGraph *end_recording(DeviceQueue *queue, DeviceError *error) {
    const CallersContext callers;
    queue->next_overlaps = false;
    cudaGraph_t graph = nullptr;
    DeviceGraph *recorded = new (std::nothrow) DeviceGraph;
    DeviceError now;
    if (enter(queue->device, &now) && // ends the capture in any case
        passed(queue->device, cudaStreamEndCapture(queue->stream, &graph), "cudaStreamEndCapture",
               &now) &&
        recorded != nullptr && queue->error.kind == DeviceError::none) {
        recorded->device = queue->device;
        passed(queue->device, cudaGraphInstantiate(&recorded->executable, graph, 0),
               "cudaGraphInstantiate", &now);
    }
    if (graph != nullptr) {
        cudaGraphDestroy(graph);
    }
    if (recorded == nullptr && now.kind == DeviceError::none) {
        tell(&now, DeviceError::no_memory, "out of memory");
    }
    if (queue->error.kind == DeviceError::none) {
        queue->error = now;
    }

    if (!hand_over(queue, error)) {
        delete recorded;
        return nullptr;
    }
    return recorded;
}

void play(DeviceQueue *queue, DeviceGraph *graph) {
    const CallersContext callers;
    queue->next_overlaps = false;
    if (ready(queue)) {
        note(queue, cudaGraphLaunch(graph->executable, queue->stream), "cudaGraphLaunch");
    }
}

void destroy_graph(DeviceGraph *graph) {
    const CallersContext callers;
    cudaSetDevice(graph->device->index);
    cudaGraphExecDestroy(graph->executable);
    cudaGetLastError();
    delete graph;
}

// Lets a kernel use all dynamic shared memory of the device, and lets as many of its blocks be
// resident as that allows. Without this, the device gives 48 KB, and may use the rest as its cache.
// All kernels request the same division, including those that need little, because a multiprocessor
// changes it only when it is empty, and blocks of different kernels should share one. Done once for
// each kernel.
bool prepare(DeviceQueue *queue, const void *kernel) {
    Device &device = *queue->device;
    const std::lock_guard lock(device.mutex);
    for (size_t i = 0; i < device.prepared_count; ++i) {
        if (device.prepared[i] == kernel) {
            return true;
        }
    }
    // The dynamic limit is the device's limit less the kernel's static memory.
    int most_bytes = 0;
    cudaFuncAttributes attributes = {};
    if (!passed(&device,
                cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                       device.index),
                "cudaDeviceGetAttribute", &queue->error) ||
        !passed(&device, cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes",
                &queue->error)) {
        return false;
    }
    most_bytes -= static_cast<int>(attributes.sharedSizeBytes);
    if (!passed(
            &device,
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most_bytes),
            "cudaFuncSetAttribute", &queue->error) ||
        !passed(&device,
                cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                     cudaSharedmemCarveoutMaxShared),
                "cudaFuncSetAttribute", &queue->error)) {
        return false;
    }
    if (device.prepared_count < sizeof device.prepared / sizeof device.prepared[0]) {
        device.prepared[device.prepared_count++] = kernel;
    }
    return true;
}

} // namespace

unsigned multiprocessors(const DeviceQueue *queue) {
    return queue->device->multiprocessors;
}

bool ready(DeviceQueue *queue) {
    return queue->error.kind == DeviceError::none && enter(queue->device, &queue->error);
}

void launch(DeviceQueue *queue, const Launch &shape, const void *kernel, void **arguments) {
    const CallersContext callers;
    const bool empty = shape.blocks.x == 0 || shape.blocks.y == 0 || shape.blocks.z == 0;
    if (empty || !ready(queue) || !prepare(queue, kernel)) {
        return;
    }
    // The attribute is passed only if the last work enqueued allows an overlap.
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = shape.blocks, config.blockDim = dim3(shape.threads);
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = queue->stream;
    config.attrs = &overlap;
    config.numAttrs = queue->next_overlaps ? 1 : 0;
    note(queue, cudaLaunchKernelExC(&config, kernel, arguments), "cudaLaunchKernelExC");
    queue->next_overlaps = queue->device->overlaps && !shape.read_early;
}

void add_queues(DeviceTable &table) {
    table.create_queue = create_queue;
    table.destroy_queue = destroy_queue;
    table.copy = copy;
    table.clear = clear;
    table.finish = finish;
    table.begin_recording = begin_recording;
    table.end_recording = end_recording;
    table.play = play;
    table.destroy_graph = destroy_graph;
}

} // namespace stasis::kernels::device
