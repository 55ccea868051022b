// The functions of cuBLASLt that the device profile calls. The library is opened when a model asks
// for the profile: no file links to it, and no package requires it. Knows no shapes and calls
// nothing of the CUDA runtime, so that it is tested without a GPU.
#pragma once

#include "runtime/kernels/device.h"

#if __has_include(<cublasLt.h>) && __has_include(<driver_types.h>)
#include <cublasLt.h>
#define STASIS_CUBLASLT // the module can be built with cuBLASLt

namespace stasis::kernels::device {

struct LtCalls {
    decltype(&cublasLtGetVersion) version = nullptr;
    decltype(&cublasLtGetStatusName) status_name = nullptr;
    decltype(&cublasLtCreate) create = nullptr;
    decltype(&cublasLtDestroy) destroy = nullptr;
    decltype(&cublasLtMatmulDescCreate) make_product = nullptr;
    decltype(&cublasLtMatmulDescSetAttribute) set_product = nullptr;
    decltype(&cublasLtMatmulDescDestroy) drop_product = nullptr;
    decltype(&cublasLtMatrixLayoutCreate) make_layout = nullptr;
    decltype(&cublasLtMatrixLayoutDestroy) drop_layout = nullptr;
    decltype(&cublasLtMatmulPreferenceCreate) make_preference = nullptr;
    decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
    decltype(&cublasLtMatmulPreferenceDestroy) drop_preference = nullptr;
    decltype(&cublasLtMatmulAlgoGetHeuristic) choose = nullptr;
    decltype(&cublasLtMatmulAlgoCheck) check = nullptr;
    decltype(&cublasLtMatmulAlgoConfigGetAttribute) configuration = nullptr;
    decltype(&cublasLtMatmul) run = nullptr;
};

// "libcublasLt.so." and the major version of the toolkit that this is compiled with.
extern const char *const kLtFile;

// Opens the library as the loader finds it, for the life of the process, because its registrations
// with the driver cannot be undone. Returns false (unavailable) if the loader does not find it, it
// lacks a function, or its major version differs.
bool open_library(const char *file, LtCalls *calls, DeviceError *error);

} // namespace stasis::kernels::device

#endif
