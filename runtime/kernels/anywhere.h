// How a function is declared that host and devices share. On the host it is always inlined: kernels
// are compiled for several instruction sets, and none may get another's copy.
#pragma once

#ifdef __CUDACC__
#define STASIS_ANYWHERE __host__ __device__ inline
#else
#define STASIS_ANYWHERE [[gnu::always_inline]] inline
#endif
