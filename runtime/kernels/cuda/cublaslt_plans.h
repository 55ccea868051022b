// Algorithms of cuBLASLt, chosen once for each shape of a product and kept: what they are, what
// they are called in a snapshot (the id), and a product by one of them. Calls the library alone,
// and nothing of the CUDA runtime, so that it is tested without a GPU.
//
// Why the same id gives the same bits: an algorithm is chosen by the library's own rules, nothing
// is timed; K is not split, so no sum is put together by several blocks; a queue's workspace is its
// own; and all that tells one algorithm from another is in the id.
#pragma once

#include "runtime/kernels/cuda/cublaslt_library.h"

#ifdef STASIS_CUBLASLT

#include <memory>
#include <mutex>

namespace stasis::kernels::device {

// Of every queue; what NVIDIA advises for Hopper. Other sizes may lead to other algorithms.
inline constexpr size_t kLtWorkspaceBytes = size_t{32} << 20;
inline constexpr size_t kLtAlignment = 16; // bytes: promised to the library of every pointer

// What tells an algorithm from others, as the library numbers it.
inline constexpr size_t kLtConfiguration = 9;

struct LtPlan {
    DeviceShape shape = {};
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    uint32_t configuration[kLtConfiguration] = {};
};

// The device that a thread has made its own when it calls.
struct LtDevice {
    int index;
    unsigned major, minor, multiprocessors;
};

class LtPlans {
  public:
    LtPlans(const LtCalls &calls, const LtDevice &device) : calls_(calls), device_(device) {}
    ~LtPlans();
    LtPlans(const LtPlans &) = delete;
    LtPlans &operator=(const LtPlans &) = delete;

    // Once. False: there is no algorithm for a shape, or the library fails; then it is of no use.
    bool choose(const DeviceShape *shapes, size_t count, DeviceError *error);

    // "cublaslt 13.1.0 sm_90 132 SMs 0123456789abcdef": a hash (FNV-1a) of shapes and algorithms.
    void write_id(char (&id)[kDeviceIdBytes]) const;

    // Enqueues the product of x with w[index]. Several threads may, on streams and with workspaces
    // of their own. False: the shape was not chosen for, a pointer is not aligned, or the library
    // fails; nothing was enqueued then.
    bool enqueue(const DeviceProduct &task, size_t index, void *workspace, cudaStream_t stream,
                 DeviceError *error);

  private:
    bool passed(cublasStatus_t status, const char *call, const DeviceShape *shape,
                DeviceError *error) const;
    bool prefer(DeviceError *error);
    bool describe(LtPlan *plan, DeviceError *error) const;
    bool pick(LtPlan *plan, DeviceError *error) const;
    bool read(LtPlan *plan) const;
    LtPlan *find(const DeviceShape &shape) const;

    const LtCalls calls_;
    const LtDevice device_;
    cublasLtHandle_t handle_ = nullptr;
    cublasLtMatmulPreference_t preference_ = nullptr;
    std::unique_ptr<LtPlan[]> plans_;
    size_t count_ = 0;
    std::mutex mutex_; // of the plans' descriptions, which name a product's bias
};

} // namespace stasis::kernels::device

#endif
