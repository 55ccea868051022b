// What the text of a CUDA kernel needs, from the CUDA compiler or, where another one compiles it,
// from a grid of threads that take turns on the host (host_grid.h): the same text runs there, so
// that its indices, barriers and arithmetic are tested without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>

#include "runtime/kernels/device.h"

#ifdef __CUDACC__

#include <cuda_runtime.h>

namespace stasis::kernels::device {

// Shared memory whose size the launch says.
template <typename T> __device__ inline T *dynamic_shared() {
    extern __shared__ __align__(16) unsigned char stasis_dynamic_shared[];
    return reinterpret_cast<T *>(stasis_dynamic_shared);
}

// A kernel of a queue may begin once all blocks of the one before have said so (queue.cu), or
// ended. For those that have something to do before they wait.
__device__ inline void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Lets the next one begin, and waits until all that was enqueued before is done and seen. Every
// thread of every kernel calls it, before it reads or writes device memory. Before it some read
// what no work beside them writes: weights, their measures, and what a pass says of its rows and
// pages.
__device__ inline void wait_for_previous() {
    let_next_begin();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Has `size_bytes` of the device's memory on their way into its cache, 128 bytes a thread of
// `count`. Whatever is written there is seen none the less: it may be called before the wait.
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

// Shape of a launch: blocks, threads of each, and its dynamic shared memory in bytes.
struct Launch {
    dim3 blocks;
    unsigned threads;
    size_t shared_bytes = 0;
    bool read_early = false; // what it writes is read before a wait
};

#ifdef __CUDACC__

// Enqueues a kernel; `arguments` point to its parameters (module.cu).
void launch(DeviceQueue *queue, const Launch &shape, const void *kernel, void **arguments);

// Enqueues kernel(arguments...). The parameters' own types, so that what is passed fits them.
template <typename... Parameters>
void enqueue(DeviceQueue *queue, const Launch &shape, void (*kernel)(Parameters...),
             std::type_identity_t<Parameters>... arguments) {
    void *pointers[] = {static_cast<void *>(&arguments)...};
    launch(queue, shape, reinterpret_cast<const void *>(kernel), pointers);
}

#else

// Does the work when the queue comes to it (the module of the tests).
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
