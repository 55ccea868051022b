// The declaration of functions that host and devices share. On the host they are always inlined:
// kernels are compiled for several instruction sets, and none may link another's copy.
#pragma once

#ifdef __CUDACC__
#define STASIS_ANYWHERE __host__ __device__ inline
#else
#define STASIS_ANYWHERE [[gnu::always_inline]] inline
#endif
