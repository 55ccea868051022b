// Opens cuBLASLt and finds its functions; see cublaslt_library.h.
#include "runtime/kernels/cuda/cublaslt_library.h"

#ifdef STASIS_CUBLASLT

#include <dlfcn.h>

#include "runtime/kernels/cuda/error.h"

#define STASIS_TEXT_OF(number) #number
#define STASIS_TEXT(macro) STASIS_TEXT_OF(macro)

namespace stasis::kernels::device {

namespace {

// Looks up functions, and stores the name of the first that is missing.
struct Search {
    void *library;
    const char *missing = nullptr;

    template <typename Call> void find(Call &call, const char *name) {
        call = reinterpret_cast<Call>(dlsym(library, name));
        if (call == nullptr && missing == nullptr) {
            missing = name;
        }
    }
};

const char *first_missing(void *library, LtCalls *calls) {
    Search search{library};
    search.find(calls->version, "cublasLtGetVersion");
    search.find(calls->status_name, "cublasLtGetStatusName");
    search.find(calls->create, "cublasLtCreate");
    search.find(calls->destroy, "cublasLtDestroy");
    search.find(calls->make_product, "cublasLtMatmulDescCreate");
    search.find(calls->set_product, "cublasLtMatmulDescSetAttribute");
    search.find(calls->drop_product, "cublasLtMatmulDescDestroy");
    search.find(calls->make_layout, "cublasLtMatrixLayoutCreate");
    search.find(calls->drop_layout, "cublasLtMatrixLayoutDestroy");
    search.find(calls->make_preference, "cublasLtMatmulPreferenceCreate");
    search.find(calls->set_preference, "cublasLtMatmulPreferenceSetAttribute");
    search.find(calls->drop_preference, "cublasLtMatmulPreferenceDestroy");
    search.find(calls->choose, "cublasLtMatmulAlgoGetHeuristic");
    search.find(calls->check, "cublasLtMatmulAlgoCheck");
    search.find(calls->configuration, "cublasLtMatmulAlgoConfigGetAttribute");
    search.find(calls->run, "cublasLtMatmul");
    return search.missing;
}

} // namespace

const char *const kLtFile = "libcublasLt.so." STASIS_TEXT(CUBLAS_VER_MAJOR);

bool open_library(const char *file, LtCalls *calls, DeviceError *error) {
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char *why = dlerror();
        tell(error, DeviceError::unavailable, "the device profile needs cuBLASLt: %s",
             why != nullptr ? why : file);
        return false;
    }
    if (const char *missing = first_missing(library, calls)) {
        tell(error, DeviceError::unavailable, "the device profile needs cuBLASLt: %s has no %s",
             file, missing);
        dlclose(library);
        return false;
    }
    const size_t version = calls->version(); // 130100: 13.1.0
    if (version / 10000 != CUBLAS_VER_MAJOR) {
        tell(error, DeviceError::unavailable,
             "the device profile needs cuBLASLt %d: %s is version %zu.%zu.%zu", CUBLAS_VER_MAJOR,
             file, version / 10000, version / 100 % 100, version % 100);
        dlclose(library);
        return false;
    }
    return true;
}

} // namespace stasis::kernels::device

#endif
