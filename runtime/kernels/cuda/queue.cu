// Queues of a CUDA device, which are streams that keep their first error, and recorded work, which
// is a graph.
#include <new>

#include "runtime/kernels/cuda/driver.h"

namespace stasis::kernels::device {

namespace {

constexpr size_t kSharedBytesFew = 16 * 1024; // whatever is resident finds room for these

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
    if (queue->workspace != nullptr) { // which its work uses
        cudaStreamSynchronize(queue->stream);
        release(queue->device, queue->workspace);
    }
    cudaStreamDestroy(queue->stream); // once its work is done
    cudaGetLastError();
    delete queue;
}

void copy(DeviceQueue *queue, void *to, const void *from, size_t size_bytes) {
    const CallersContext callers;
    if (size_bytes > 0 && ready(queue)) {
        note(queue, cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, queue->stream),
             "cudaMemcpyAsync");
    }
}

void clear(DeviceQueue *queue, void *memory, size_t rows, size_t row_bytes, size_t from_bytes) {
    const CallersContext callers;
    const size_t width_bytes = row_bytes - from_bytes;
    if (rows > 0 && width_bytes > 0 && ready(queue)) {
        auto *begin = static_cast<unsigned char *>(memory) + from_bytes;
        note(queue,
             rows == 1 ? cudaMemsetAsync(begin, 0, width_bytes, queue->stream)
                       : cudaMemset2DAsync(begin, row_bytes, 0, width_bytes, rows, queue->stream),
             "clearing memory");
    }
}

// Hands over what the queue has met, if anything. True: nothing.
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
    DeviceError now; // waits in any case: what was enqueued before an error still runs
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
    if (ready(queue)) { // relaxed: other threads, and this one, may allocate meanwhile
        note(queue, cudaStreamBeginCapture(queue->stream, cudaStreamCaptureModeRelaxed),
             "cudaStreamBeginCapture");
    }
}

DeviceGraph *end_recording(DeviceQueue *queue, DeviceError *error) {
    const CallersContext callers;
    cudaGraph_t graph = nullptr;
    DeviceGraph *recorded = new (std::nothrow) DeviceGraph;
    DeviceError now;
    if (enter(queue->device, &now) && // ends it in any case
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

// Lets a kernel have as much dynamic shared memory as the device has, and as many blocks of it be
// resident as that allows: without being asked the device gives 48 KB, and may keep the rest as its
// cache. Once for each kernel.
bool prepare(DeviceQueue *queue, const void *kernel) {
    Device &device = *queue->device;
    const std::lock_guard lock(device.mutex);
    for (size_t i = 0; i < device.prepared_count; ++i) {
        if (device.prepared[i] == kernel) {
            return true;
        }
    }
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

bool ready(DeviceQueue *queue) {
    return queue->error.kind == DeviceError::none && enter(queue->device, &queue->error);
}

void launch(DeviceQueue *queue, const Launch &shape, const void *kernel, void **arguments) {
    const CallersContext callers;
    const bool empty = shape.blocks.x == 0 || shape.blocks.y == 0 || shape.blocks.z == 0;
    if (empty || !ready(queue) ||
        (shape.shared_bytes > kSharedBytesFew && !prepare(queue, kernel))) {
        return;
    }
    note(queue,
         cudaLaunchKernel(kernel, shape.blocks, dim3(shape.threads), arguments, shape.shared_bytes,
                          queue->stream),
         "cudaLaunchKernel");
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
