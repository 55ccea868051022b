// See lt_stand_in.h.
#include "tests/kernels/lt_stand_in.h"

#ifdef STASIS_CUBLASLT

#include <mutex>
#include <thread>

namespace lt_stand_in {

Library &library() {
    static Library one;
    return one;
}

namespace {

// What lies behind the library's pointers.
struct Product {
    Attributes attributes;
};
struct Preference {
    Attributes attributes;
};

std::mutex mutex; // of the library's `runs`

cublasStatus_t next_call() {
    return library().calls++ == library().fail_at ? CUBLAS_STATUS_INTERNAL_ERROR
                                                  : CUBLAS_STATUS_SUCCESS;
}

template <typename Handle, typename Thing> cublasStatus_t make(Handle *handle, Thing *thing) {
    const cublasStatus_t status = next_call();
    if (status != CUBLAS_STATUS_SUCCESS) {
        delete thing;
        return status;
    }
    ++library().alive;
    *handle = reinterpret_cast<Handle>(thing);
    return status;
}

template <typename Thing, typename Handle> cublasStatus_t drop(Handle handle) {
    --library().alive;
    delete reinterpret_cast<Thing *>(handle);
    return CUBLAS_STATUS_SUCCESS;
}

std::vector<unsigned char> bytes_of(const void *value, size_t size_bytes) {
    const auto *bytes = static_cast<const unsigned char *>(value);
    return {bytes, bytes + size_bytes};
}

cublasStatus_t set_product(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t name,
                           const void *value, size_t size_bytes) {
    reinterpret_cast<Product *>(product)->attributes[name] = bytes_of(value, size_bytes);
    std::this_thread::yield(); // another thread has time to set it too
    return next_call();
}

cublasStatus_t set_preference(cublasLtMatmulPreference_t preference,
                              cublasLtMatmulPreferenceAttributes_t name, const void *value,
                              size_t size_bytes) {
    reinterpret_cast<Preference *>(preference)->attributes[name] = bytes_of(value, size_bytes);
    return next_call();
}

// The number of a proposal is all that an algorithm of this library holds, besides what must not
// matter.
cublasStatus_t choose(cublasLtHandle_t, cublasLtMatmulDesc_t product, cublasLtMatrixLayout_t,
                      cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                      cublasLtMatmulPreference_t preference, int most,
                      cublasLtMatmulHeuristicResult_t results[], int *count) {
    Library &own = library();
    own.chosen_for.push_back(reinterpret_cast<Product *>(product)->attributes);
    own.preferences = reinterpret_cast<Preference *>(preference)->attributes;
    *count = 0;
    for (size_t i = 0; i < own.proposals.size() && *count < most; ++i, ++*count) {
        results[i] = {};
        results[i].state = own.proposals[i].state;
        results[i].algo.data[0] = i;
        results[i].algo.data[1] = reinterpret_cast<uintptr_t>(results);
    }
    return own.choosing;
}

cublasStatus_t check(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                     cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                     const cublasLtMatmulAlgo_t *algorithm,
                     cublasLtMatmulHeuristicResult_t *result) {
    const Proposal &proposal = library().proposals[algorithm->data[0]];
    result->workspaceSize = proposal.workspace_bytes;
    return proposal.check;
}

cublasStatus_t configuration(const cublasLtMatmulAlgo_t *algorithm,
                             cublasLtMatmulAlgoConfigAttributes_t name, void *value,
                             size_t size_bytes, size_t *written) {
    const bool narrow = name == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                        name == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    if (size_bytes != (narrow ? 2 : 4)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    const uint32_t number =
        library().proposals[algorithm->data[0]].configuration[static_cast<size_t>(name)];
    std::memcpy(value, &number, size_bytes);
    *written = size_bytes;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t run(cublasLtHandle_t, cublasLtMatmulDesc_t product, const void *alpha,
                   const void *a_data, cublasLtMatrixLayout_t a, const void *b_data,
                   cublasLtMatrixLayout_t b, const void *beta, const void *c_data,
                   cublasLtMatrixLayout_t c, void *d_data, cublasLtMatrixLayout_t d,
                   const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                   cudaStream_t stream) {
    const auto layout = [](cublasLtMatrixLayout_t each) {
        return *reinterpret_cast<const Layout *>(each);
    };
    const Run one = {reinterpret_cast<Product *>(product)->attributes,
                     layout(a),
                     layout(b),
                     layout(c),
                     layout(d),
                     a_data,
                     b_data,
                     c_data,
                     d_data,
                     workspace,
                     *static_cast<const float *>(alpha),
                     *static_cast<const float *>(beta),
                     workspace_bytes,
                     stream,
                     library().proposals[algorithm->data[0]].configuration};
    const std::lock_guard lock(mutex);
    library().runs.push_back(one);
    return library().running;
}

} // namespace

stasis::kernels::device::LtCalls calls() {
    stasis::kernels::device::LtCalls own;
    own.version = [] { return library().version; };
    own.status_name = [](cublasStatus_t status) {
        return status == CUBLAS_STATUS_ALLOC_FAILED ? "no room" : "some status";
    };
    own.create = [](cublasLtHandle_t *handle) { return make(handle, new int); };
    own.destroy = [](cublasLtHandle_t handle) { return drop<int>(handle); };
    own.make_product = [](cublasLtMatmulDesc_t *product, cublasComputeType_t sums,
                          cudaDataType_t scale) {
        auto *made = new Product;
        made->attributes[CUBLASLT_MATMUL_DESC_COMPUTE_TYPE] = bytes_of(&sums, sizeof sums);
        made->attributes[CUBLASLT_MATMUL_DESC_SCALE_TYPE] = bytes_of(&scale, sizeof scale);
        return make(product, made);
    };
    own.set_product = set_product;
    own.drop_product = [](cublasLtMatmulDesc_t product) { return drop<Product>(product); };
    own.make_layout = [](cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                         uint64_t columns, int64_t stride) {
        return make(layout, new Layout{type, rows, columns, stride});
    };
    own.drop_layout = [](cublasLtMatrixLayout_t layout) { return drop<Layout>(layout); };
    own.make_preference = [](cublasLtMatmulPreference_t *preference) {
        return make(preference, new Preference);
    };
    own.set_preference = set_preference;
    own.drop_preference = [](cublasLtMatmulPreference_t preference) {
        return drop<Preference>(preference);
    };
    own.choose = choose;
    own.check = check;
    own.configuration = configuration;
    own.run = run;
    return own;
}

} // namespace lt_stand_in

#endif
