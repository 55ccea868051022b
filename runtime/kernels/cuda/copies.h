// Asynchronous copies from global to shared memory, 16 bytes each: they need no registers while they
// are on the way, so that many can be. What a thread copied is its own to see after wait_copies, and
// its warp's or block's after the barrier that follows.
#pragma once

#include "runtime/kernels/cuda/grid.h"

namespace stasis::kernels::device {

#ifdef __CUDACC__

// Past the first-level cache: what is copied is read once by a block.
__device__ inline void copy_async(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(__cvta_generic_to_global(from))
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
inline void end_copies() {
    host_grid::end_group();
}
template <unsigned kLeft> void wait_copies() {
    host_grid::wait_groups(kLeft);
}

#endif

} // namespace stasis::kernels::device
