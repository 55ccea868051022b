// Chooses algorithms and enqueues products; see cublaslt_plans.h. The library reads a row-major
// matrix as a column-major one with its sides exchanged: y [rows][outputs] = x [rows][depth] w
// [outputs][depth]^T is to it
// Y (outputs x rows) = W (depth x outputs)^T X (depth x rows).
#include "runtime/kernels/cuda/cublaslt_plans.h"

#ifdef STASIS_CUBLASLT

#include <new>

#include "runtime/kernels/cuda/error.h"

namespace stasis::kernels::device {

namespace {

// Results of the library's heuristic, which orders them by its estimate of speed.
constexpr int kResults = 32;

struct Attribute {
    cublasLtMatmulAlgoConfigAttributes_t name;
    size_t size_bytes;
};
constexpr Attribute kAttributes[kLtConfiguration] = {
    {CUBLASLT_ALGO_CONFIG_ID, 4},
    {CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
    {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
};
constexpr size_t kSplits = 2, kReduction = 3; // indices in kAttributes

struct ShapeText {
    char text[128];
    explicit ShapeText(const DeviceShape &shape) {
        std::snprintf(text, sizeof text, "a product of %zu rows, %zu outputs and depth %zu%s",
                      shape.rows, shape.outputs, shape.depth, shape.bias ? " with a bias" : "");
    }
};

bool same(const DeviceShape &a, const DeviceShape &b) {
    return a.rows == b.rows && a.outputs == b.outputs && a.depth == b.depth && a.bias == b.bias;
}

bool aligned(const void *pointer) {
    return reinterpret_cast<uintptr_t>(pointer) % kLtAlignment == 0;
}

// FNV-1a of numbers, each as 8 bytes, the lowest byte first.
struct Hash {
    uint64_t value = 14695981039346656037U;
    void add(uint64_t number) {
        for (int i = 0; i < 8; ++i, number >>= 8) {
            value = (value ^ (number & 0xFFU)) * 1099511628211U;
        }
    }
};

} // namespace

LtPlans::~LtPlans() {
    for (size_t i = 0; i < count_; ++i) {
        for (cublasLtMatrixLayout_t each : {plans_[i].w, plans_[i].x, plans_[i].y}) {
            if (each != nullptr) {
                calls_.drop_layout(each);
            }
        }
        if (plans_[i].product != nullptr) {
            calls_.drop_product(plans_[i].product);
        }
    }
    if (preference_ != nullptr) {
        calls_.drop_preference(preference_);
    }
    if (handle_ != nullptr) {
        calls_.destroy(handle_);
    }
}

bool LtPlans::passed(cublasStatus_t status, const char *call, const DeviceShape *shape,
                     DeviceError *error) const {
    if (status != CUBLAS_STATUS_SUCCESS) {
        tell(error,
             status == CUBLAS_STATUS_ALLOC_FAILED ? DeviceError::no_memory : DeviceError::failed,
             "cuda:%d: %s%s%s: %s", device_.index, call, shape != nullptr ? ", " : "",
             shape != nullptr ? ShapeText(*shape).text : "", calls_.status_name(status));
    }
    return status == CUBLAS_STATUS_SUCCESS;
}

LtPlan *LtPlans::find(const DeviceShape &shape) const {
    for (size_t i = 0; i < count_; ++i) {
        if (same(plans_[i].shape, shape)) {
            return &plans_[i];
        }
    }
    return nullptr;
}

bool LtPlans::choose(const DeviceShape *shapes, size_t count, DeviceError *error) {
    plans_.reset(new (std::nothrow) LtPlan[count]);
    if (plans_ == nullptr) {
        tell(error, DeviceError::no_memory, "out of memory");
        return false;
    }
    if (!passed(calls_.create(&handle_), "cublasLtCreate", nullptr, error) || !prefer(error)) {
        return false;
    }
    for (size_t i = 0; i < count; ++i) {
        if (find(shapes[i]) != nullptr) {
            continue;
        }
        LtPlan *plan = &plans_[count_++];
        plan->shape = shapes[i];
        if (!describe(plan, error) || !pick(plan, error)) {
            return false;
        }
    }
    return true;
}

// Sets the preference. No reduction: K is not split. The library has no separate setting for a
// stream-K schedule, which would also let several blocks compute a sum; the reduction scheme covers
// all of these.
bool LtPlans::prefer(DeviceError *error) {
    const uint64_t workspace_bytes = kLtWorkspaceBytes;
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE, alignment = kLtAlignment;
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t name, const auto &value) {
        return passed(calls_.set_preference(preference_, name, &value, sizeof value),
                      "cublasLtMatmulPreferenceSetAttribute", nullptr, error);
    };
    return passed(calls_.make_preference(&preference_), "cublasLtMatmulPreferenceCreate", nullptr,
                  error) &&
           set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes) &&
           set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions) &&
           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment) &&
           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment) &&
           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment) &&
           set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
}

// Describes the product. Sums are f32; a bias has y's type, f32, as the library requires.
bool LtPlans::describe(LtPlan *plan, DeviceError *error) const {
    const DeviceShape &shape = plan->shape;
    const auto set = [&](cublasLtMatmulDescAttributes_t name, const auto &value) {
        return passed(calls_.set_product(plan->product, name, &value, sizeof value),
                      "cublasLtMatmulDescSetAttribute", &shape, error);
    };
    const auto lay = [&](cublasLtMatrixLayout_t *layout, cudaDataType type, size_t rows,
                         size_t columns) {
        return passed(calls_.make_layout(layout, type, rows, columns, static_cast<int64_t>(rows)),
                      "cublasLtMatrixLayoutCreate", &shape, error);
    };
    if (!passed(calls_.make_product(&plan->product, CUBLAS_COMPUTE_32F, CUDA_R_32F),
                "cublasLtMatmulDescCreate", &shape, error) ||
        !set(CUBLASLT_MATMUL_DESC_TRANSA, cublasOperation_t{CUBLAS_OP_T}) ||
        !lay(&plan->w, CUDA_R_16BF, shape.depth, shape.outputs) ||
        !lay(&plan->x, CUDA_R_16BF, shape.depth, shape.rows) ||
        !lay(&plan->y, CUDA_R_32F, shape.outputs, shape.rows)) {
        return false;
    }
    // The pointer is not read when an algorithm is chosen; it only states the alignment of a bias.
    const void *some_bias = reinterpret_cast<const void *>(uintptr_t{kLtAlignment});
    return !shape.bias ||
           (set(CUBLASLT_MATMUL_DESC_EPILOGUE, cublasLtEpilogue_t{CUBLASLT_EPILOGUE_BIAS}) &&
            set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, int32_t{CUDA_R_32F}) &&
            set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, some_bias));
}

// Picks the first algorithm that may be used.
bool LtPlans::pick(LtPlan *plan, DeviceError *error) const {
    cublasLtMatmulHeuristicResult_t results[kResults] = {};
    int count = 0;
    const cublasStatus_t status = calls_.choose(handle_, plan->product, plan->w, plan->x, plan->y,
                                                plan->y, preference_, kResults, results, &count);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED &&
        !passed(status, "cublasLtMatmulAlgoGetHeuristic", &plan->shape, error)) {
        return false;
    }
    for (int i = 0; i < count; ++i) {
        cublasLtMatmulHeuristicResult_t checked = {};
        plan->algorithm = results[i].algo;
        if (results[i].state == CUBLAS_STATUS_SUCCESS && read(plan) &&
            plan->configuration[kSplits] <= 1 &&
            plan->configuration[kReduction] == CUBLASLT_REDUCTION_SCHEME_NONE &&
            calls_.check(handle_, plan->product, plan->w, plan->x, plan->y, plan->y,
                         &plan->algorithm, &checked) == CUBLAS_STATUS_SUCCESS &&
            checked.workspaceSize <= kLtWorkspaceBytes) {
            return true;
        }
    }
    tell(error, DeviceError::failed,
         "cuda:%d: cuBLASLt has no algorithm for %s that does not split it (of %d)", device_.index,
         ShapeText(plan->shape).text, count);
    return false;
}

bool LtPlans::read(LtPlan *plan) const {
    for (size_t i = 0; i < kLtConfiguration; ++i) {
        size_t written = 0;
        plan->configuration[i] = 0; // a value of 2 bytes is its low half
        if (calls_.configuration(&plan->algorithm, kAttributes[i].name, &plan->configuration[i],
                                 kAttributes[i].size_bytes, &written) != CUBLAS_STATUS_SUCCESS ||
            written != kAttributes[i].size_bytes) {
            return false;
        }
    }
    return true;
}

void LtPlans::write_id(char (&id)[kDeviceIdBytes]) const {
    Hash hash;
    hash.add(kLtWorkspaceBytes);
    for (size_t i = 0; i < count_; ++i) {
        const DeviceShape &shape = plans_[i].shape;
        for (const uint64_t number :
             {uint64_t{shape.rows}, uint64_t{shape.outputs}, uint64_t{shape.depth},
              shape.bias ? uint64_t{1} : uint64_t{0}}) {
            hash.add(number);
        }
        for (const uint32_t number : plans_[i].configuration) {
            hash.add(number);
        }
    }
    const size_t version = calls_.version();
    std::snprintf(id, sizeof id, "cublaslt %zu.%zu.%zu sm_%u%u %u SMs %016llx", version / 10000,
                  version / 100 % 100, version % 100, device_.major, device_.minor,
                  device_.multiprocessors, static_cast<unsigned long long>(hash.value));
}

bool LtPlans::enqueue(const DeviceProduct &task, size_t index, void *workspace, cudaStream_t stream,
                      DeviceError *error) {
    const DeviceMatrix &w = task.w[index];
    float *y = task.y[index];
    const DeviceShape shape = {task.rows, w.outputs, w.depth, w.bias != nullptr};
    const LtPlan *plan = find(shape);
    if (plan == nullptr) {
        tell(error, DeviceError::failed, "cuda:%d: %s was not pinned", device_.index,
             ShapeText(shape).text);
        return false;
    }
    for (const void *pointer : {static_cast<const void *>(task.x), static_cast<const void *>(w.w),
                                static_cast<const void *>(w.bias), static_cast<const void *>(y)}) {
        if (!aligned(pointer)) {
            tell(error, DeviceError::failed,
                 "cuda:%d: %s has a pointer that is not %zu-byte aligned", device_.index,
                 ShapeText(shape).text, kLtAlignment);
            return false;
        }
    }

    // The lock guards the plan: its bias pointer is set for each call.
    const float one = 1.0F, zero = 0.0F;
    const std::lock_guard lock(mutex_);
    return (w.bias == nullptr ||
            passed(calls_.set_product(plan->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &w.bias,
                                      sizeof w.bias),
                   "cublasLtMatmulDescSetAttribute", &shape, error)) &&
           passed(calls_.run(handle_, plan->product, &one, w.w, plan->w, task.x, plan->x, &zero, y,
                             plan->y, y, plan->y, &plan->algorithm, workspace, kLtWorkspaceBytes,
                             stream),
                  "cublasLtMatmul", &shape, error);
}

} // namespace stasis::kernels::device

#endif
