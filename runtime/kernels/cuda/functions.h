// exp, tanh, sigmoid, the tree of a sum and bf16 on the device: the reference's source itself, so
// that only one version exists. Its plain operators are the compiler's, which is set to flush, not
// to contract, and to round division and square root as IEEE 754 requires.
#pragma once

#include "runtime/kernels/bf16.h"
#include "runtime/kernels/cuda/arithmetic.h"

#define STASIS_REFERENCE device
#define STASIS_DEVICE_TEXT
#define STASIS_FUNCTION __device__ inline
#include "runtime/kernels/reference/functions.h"
#undef STASIS_FUNCTION
#undef STASIS_DEVICE_TEXT
#undef STASIS_REFERENCE
