// Asynchronous copies from global to shared memory, 16 bytes each. They need no registers until
// they complete, so many can be pending. After wait_copies a thread sees its own copies; after the
// next barrier its warp or block sees them.
#pragma once

#include "runtime/kernels/cuda/grid.h"

namespace stasis::kernels::device {

#ifdef __CUDACC__

// Bypasses the first-level cache, because a block reads the data once.
__device__ inline void copy_async(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(__cvta_generic_to_global(from))
                 : "memory");
}
// The same for data that only one block reads: the second-level cache evicts it first, so that
// small data which every token needs stays cached while weights stream through.
__device__ inline void copy_async_once(void *to, const void *from) {
    uint64_t given_up_first;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(given_up_first));
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(__cvta_generic_to_global(from)), "l"(given_up_first)
                 : "memory");
}
// Ends a group of copies; it may be empty.
__device__ inline void end_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits for all groups of this thread but the kLeft last ones.
template <unsigned kLeft> __device__ inline void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

#else

inline void copy_async(void *to, const void *from) {
    host_grid::copy_later(to, from);
}
inline void copy_async_once(void *to, const void *from) {
    host_grid::copy_later(to, from);
}
inline void end_copies() {
    host_grid::end_group();
}
template <unsigned kLeft> void wait_copies() {
    host_grid::wait_groups(kLeft);
}

#endif

} // namespace stasis::kernels::device
