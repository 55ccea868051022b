// Functions for the parts of the module that call the CUDA runtime: its devices and queues, and
// error reports. Knows no kernels.
// Every entry sets the calling thread's device, because host threads come and go, and restores the
// thread's context, because the host may use CUDA itself. No entry throws or prints, and each
// clears the thread's last error in the runtime.
#pragma once

#include <cuda.h>

#include <atomic>
#include <mutex>

#include "runtime/kernels/cuda/error.h"
#include "runtime/kernels/cuda/grid.h"

namespace stasis::kernels {

namespace device {
class LtPlans;
}

struct Device {
    int index = 0;
    unsigned multiprocessors = 0;
    cudaMemPool_t pool = nullptr;  // its own, because the default one may be the host program's
    cudaStream_t stream = nullptr; // for allocations
    // Kernels of a queue may overlap (compute capability 9.0 and later; queue.cu).
    bool overlaps = false;
    std::atomic<bool> lost = false;
    device::LtPlans *plans = nullptr; // set once, before pinned products; null: none
    std::mutex mutex;                 // protects the members below
    // Kernels whose limit of dynamic shared memory is raised. If there are more kernels than
    // entries, the limit is only set again.
    const void *prepared[64] = {};
    size_t prepared_count = 0;
};

struct DeviceQueue {
    Device *device = nullptr;
    cudaStream_t stream = nullptr;
    void *workspace = nullptr; // for pinned products, allocated for the first of them
    DeviceError error;         // the first error since the last `finish`
    // The next kernel may begin before the last enqueued work has ended. True only if that work is
    // a kernel of this module that writes no weights. Code that enqueues anything else sets it to
    // false.
    bool next_overlaps = false;
};

struct DeviceGraph {
    Device *device = nullptr;
    cudaGraphExec_t executable = nullptr;
};

namespace device {

// Stores a call's error, if it failed. Returns false if it failed; the device may then be lost.
bool passed(Device *device, cudaError_t code, const char *call, DeviceError *error);

// Restores in its destructor the context that the calling thread had, or that it had none. Setting
// the device again instead would create a context, which takes memory, on a device that was never
// used.
class CallersContext {
  public:
    CallersContext();
    ~CallersContext();
    CallersContext(const CallersContext &) = delete;
    CallersContext &operator=(const CallersContext &) = delete;

  private:
    CUcontext before_ = nullptr;
};

// Makes the device current for the calling thread. Returns false if it cannot be used (any more).
bool enter(Device *device, DeviceError *error);

// Reports whether a queue has no error yet and its device can be used.
bool ready(DeviceQueue *queue);

// Entries of the table.
void *allocate(Device *device, size_t size_bytes, DeviceError *error);
void release(Device *device, void *memory);

void unpin_products(Device *device); // cublaslt.cu; the device is the calling thread's

void add_queues(DeviceTable &table); // queue.cu: queues and recorded work

} // namespace device

} // namespace stasis::kernels
