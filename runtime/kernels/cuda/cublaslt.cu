// Products by cuBLASLt in the module's table, for the device profile: their device and queue.
// cublaslt_plans.cu chooses algorithms and enqueues products.
#include <new>

#include "runtime/kernels/cuda/cublaslt_plans.h"
#include "runtime/kernels/cuda/driver.h"
#include "runtime/kernels/cuda/kernels.h"

namespace stasis::kernels::device {

#ifdef STASIS_CUBLASLT

namespace {

bool describe(Device *device, LtDevice *facts, DeviceError *error) {
    int major = 0, minor = 0, processors = 0;
    const int index = device->index;
    const cudaError_t codes[] = {
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index),
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index),
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, index),
    };
    for (const cudaError_t code : codes) {
        if (!passed(device, code, "asking for its properties", error)) {
            return false;
        }
    }
    *facts = {index, static_cast<unsigned>(major), static_cast<unsigned>(minor),
              static_cast<unsigned>(processors)};
    return true;
}

bool pin_products(Device *device, const DeviceShape *shapes, size_t count,
                  char (&id)[kDeviceIdBytes], DeviceError *error) {
    const CallersContext callers;
    LtCalls calls;
    LtDevice facts = {};
    if (device->plans != nullptr) {
        tell(error, DeviceError::failed, "cuda:%d: its products are pinned already", device->index);
        return false;
    }
    if (!enter(device, error) || !open_library(kLtFile, &calls, error) ||
        !describe(device, &facts, error)) {
        return false;
    }
    device->plans = new (std::nothrow) LtPlans(calls, facts);
    if (device->plans == nullptr) {
        tell(error, DeviceError::no_memory, "out of memory");
        return false;
    }
    if (!device->plans->choose(shapes, count, error)) {
        unpin_products(device);
        return false;
    }
    device->plans->write_id(id);
    return true;
}

} // namespace

void unpin_products(Device *device) {
    delete device->plans;
    device->plans = nullptr;
}

void pinned_product(DeviceQueue *queue, const DeviceProduct &task) {
    const CallersContext callers;
    Device *device = queue->device;
    if (!ready(queue)) {
        return;
    }
    if (device->plans == nullptr) {
        tell(&queue->error, DeviceError::failed, "cuda:%d: no products were pinned", device->index);
        return;
    }
    if (queue->workspace == nullptr) {
        queue->workspace = allocate(device, kLtWorkspaceBytes, &queue->error);
    }
    queue->next_overlaps = false;
    // A lost device is reported by `finish`, because the library's errors do not identify it.
    for (size_t i = 0; i < task.count && queue->workspace != nullptr; ++i) {
        if (!device->plans->enqueue(task, i, queue->workspace, queue->stream, &queue->error)) {
            return;
        }
    }
}

#else

namespace {

bool pin_products(Device *device, const DeviceShape *, size_t, char (&)[kDeviceIdBytes],
                  DeviceError *error) {
    tell(error, DeviceError::unavailable,
         "cuda:%d: the device profile is not in this build: cublasLt.h was not there",
         device->index);
    return false;
}

} // namespace

void unpin_products(Device *) {}

void pinned_product(DeviceQueue *queue, const DeviceProduct &) {
    tell(&queue->error, DeviceError::failed, "no products were pinned");
}

#endif

void add_pinned(DeviceTable &table) {
    table.pin_products = pin_products;
}

} // namespace stasis::kernels::device
