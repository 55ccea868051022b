// What the parts of the module that call the CUDA runtime share: its devices and queues, and how a
// call's outcome is told. Knows no kernels.
// Every entry sets the calling thread's device, as host threads come and go, and leaves the thread
// with the context that it came with: the host may use CUDA itself. No entry throws or prints; the
// thread's last error in the runtime is taken away.
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
    cudaMemPool_t pool = nullptr;  // its own: the default one may be the host program's
    cudaStream_t stream = nullptr; // that memory comes and goes on
    bool overlaps = false; // kernels of a queue may (compute capability 9.0 and later; queue.cu)
    std::atomic<bool> lost = false;
    device::LtPlans *plans = nullptr; // set once, before products that are pinned; null: none are
    std::mutex mutex;                 // of what follows
    // Kernels that may take more dynamic shared memory than they could before. Where there are more
    // of them they are only told again.
    const void *prepared[64] = {};
    size_t prepared_count = 0;
};

struct DeviceQueue {
    Device *device = nullptr;
    cudaStream_t stream = nullptr;
    void *workspace = nullptr; // of products that are pinned, taken for the first of them
    DeviceError error;         // the first since the last `finish`
    // The next kernel may begin before what was enqueued last has ended: that is a kernel of this
    // module which writes no weights. Whoever enqueues anything else on the stream says false.
    bool next_overlaps = false;
};

struct DeviceGraph {
    Device *device = nullptr;
    cudaGraphExec_t executable = nullptr;
};

namespace device {

// Says what a call came to. False: it failed, and the device may be lost by it.
bool passed(Device *device, cudaError_t code, const char *call, DeviceError *error);

// Puts back, at its end, the context that the calling thread had, or that it had none. Setting the
// device anew would not do: that makes a context, which takes memory, on a device never asked for.
class CallersContext {
  public:
    CallersContext();
    ~CallersContext();
    CallersContext(const CallersContext &) = delete;
    CallersContext &operator=(const CallersContext &) = delete;

  private:
    CUcontext before_ = nullptr;
};

// Makes the device the calling thread's. False: it cannot be used (any more).
bool enter(Device *device, DeviceError *error);

// Of a queue whose first error is kept: whether there was none and the device can be used.
bool ready(DeviceQueue *queue);

// The table's.
void *allocate(Device *device, size_t size_bytes, DeviceError *error);
void release(Device *device, void *memory);

void unpin_products(Device *device); // cublaslt.cu; the device is the calling thread's

void add_queues(DeviceTable &table); // queue.cu: queues and recorded work

} // namespace device

} // namespace stasis::kernels
