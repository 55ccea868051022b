/* Libraries that stand in for libcublasLt when it is opened: they have its functions' names (one of
   them without the last), and the version that STAND_IN_LT_VERSION says. */
#include <stddef.h>
#include <stdlib.h>

size_t cublasLtGetVersion(void) {
    const char *version = getenv("STAND_IN_LT_VERSION");
    return version != NULL ? (size_t)atoi(version) : 0;
}

#define NAME(function)                                                                             \
    void function(void);                                                                           \
    void function(void) {}
NAME(cublasLtGetStatusName)
NAME(cublasLtCreate)
NAME(cublasLtDestroy)
NAME(cublasLtMatmulDescCreate)
NAME(cublasLtMatmulDescSetAttribute)
NAME(cublasLtMatmulDescDestroy)
NAME(cublasLtMatrixLayoutCreate)
NAME(cublasLtMatrixLayoutDestroy)
NAME(cublasLtMatmulPreferenceCreate)
NAME(cublasLtMatmulPreferenceSetAttribute)
NAME(cublasLtMatmulPreferenceDestroy)
NAME(cublasLtMatmulAlgoGetHeuristic)
NAME(cublasLtMatmulAlgoCheck)
NAME(cublasLtMatmulAlgoConfigGetAttribute)
#ifndef WITHOUT_THE_LAST
NAME(cublasLtMatmul)
#endif
