// The environment of a CUDA kernel's source. The CUDA compiler provides it, or, for other
// compilers, a grid of threads that run in turn on the host (host_grid.h). The same source runs on
// both, so that its indices, barriers and arithmetic are tested without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "runtime/kernels/device.h"

#ifdef __CUDACC__

#include <cuda_runtime.h>

namespace stasis::kernels::device {

// Shared memory whose size is set at the launch.
template <typename T> __device__ inline T *dynamic_shared() {
    extern __shared__ __align__(16) unsigned char stasis_dynamic_shared[];
    return reinterpret_cast<T *>(stasis_dynamic_shared);
}

// Lets the next kernel of a queue begin once all blocks of this one have called it (queue.cu) or
// ended. For kernels that do work before they wait.
__device__ inline void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Lets the next kernel begin, and waits until all earlier work is done and its writes are visible.
// Every thread of every kernel calls it before it accesses device memory, with one exception: data
// that no concurrent work writes may be read before it. This is weights, their measures, tables of
// angles, and a pass's description of its rows and pages; where each row is the only one of its
// sequence, the pages too, but for the slots of the rows themselves.
__device__ inline void wait_for_previous() {
    let_next_begin();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// One warp waits for another, which has called pass_turn of the same number since: its earlier
// accesses to shared memory come before those after await_turn. Each turn that is passed is awaited
// by one warp. Numbers 0 to 14.
__device__ inline void await_turn(unsigned number) {
    asm volatile("bar.sync %0, 64;" ::"r"(number + 1) : "memory");
}
__device__ inline void pass_turn(unsigned number) {
    asm volatile("bar.arrive %0, 64;" ::"r"(number + 1) : "memory");
}

// Prefetches `size_bytes` of device memory into the second-level cache, 128 bytes a thread of
// `count`. Later writes to it stay visible, so it may be called before the wait.
__device__ inline void ask_for(const void *begin, size_t size_bytes, unsigned thread,
                               unsigned count) {
    const auto *bytes = static_cast<const unsigned char *>(begin);
    for (size_t at = size_t{thread} * 128; at < size_bytes; at += size_t{count} * 128) {
        asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(bytes + at)));
    }
}

} // namespace stasis::kernels::device

#else
#include "runtime/kernels/cuda/host_grid.h"
#endif

namespace stasis::kernels::device {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// The shape of a launch: blocks, threads of each, and dynamic shared memory in bytes.
struct Launch {
    dim3 blocks;
    unsigned threads;
    size_t shared_bytes = 0;
    bool read_early = false; // later kernels read its output before they wait
};

// Returns the number of the device's multiprocessors.
unsigned multiprocessors(const DeviceQueue *queue);

#ifdef __CUDACC__

// Enqueues a kernel; `arguments` point to its parameters (module.cu).
void launch(DeviceQueue *queue, const Launch &shape, const void *kernel, void **arguments);

// Enqueues kernel(arguments...). The arguments have the parameters' own types.
template <typename... Parameters>
void enqueue(DeviceQueue *queue, const Launch &shape, void (*kernel)(Parameters...),
             std::type_identity_t<Parameters>... arguments) {
    void *pointers[] = {static_cast<void *>(&arguments)...};
    launch(queue, shape, reinterpret_cast<const void *>(kernel), pointers);
}

#else

// Runs the work when the queue reaches it (the module of the tests).
void on_queue(DeviceQueue *queue, std::function<void()> work);

template <typename... Parameters>
void enqueue(DeviceQueue *queue, const Launch &shape, void (*kernel)(Parameters...),
             std::type_identity_t<Parameters>... arguments) {
    on_queue(queue, [=] {
        host_grid::run(shape.blocks, shape.threads, shape.shared_bytes, [=] {
            kernel(arguments...);
            host_grid::end_of_kernel();
        });
    });
}

#endif

} // namespace stasis::kernels::device
