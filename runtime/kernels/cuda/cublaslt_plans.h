// Algorithms of cuBLASLt, chosen once for each shape of a product and then fixed: their choice,
// their name in a snapshot (the id), and products by them. Calls only the library and nothing of
// the CUDA runtime, so that it is tested without a GPU.
//
// Equal ids give equal bits, because the library's own rules choose an algorithm and nothing is
// timed; K is not split, so no sum is computed by several blocks; each queue has a workspace of its
// own; and the id includes everything that distinguishes algorithms.
#pragma once

#include "runtime/kernels/cuda/cublaslt_library.h"

#ifdef STASIS_CUBLASLT

#include <memory>
#include <mutex>

namespace stasis::kernels::device {

// For each queue; the size that NVIDIA advises for Hopper. Other sizes may lead to other
// algorithms.
inline constexpr size_t kLtWorkspaceBytes = size_t{32} << 20;
inline constexpr size_t kLtAlignment = 16; // bytes; guaranteed to the library for every pointer

// Attributes that distinguish algorithms, as the library numbers them.
inline constexpr size_t kLtConfiguration = 9;

struct LtPlan {
    DeviceShape shape = {};
    cublasLtMatmulDesc_t product = nullptr;
    cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
    cublasLtMatmulAlgo_t algorithm = {};
    uint32_t configuration[kLtConfiguration] = {};
};

// The device that the calling thread has made current.
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

    // Chooses algorithms; called once. Returns false if a shape has no algorithm or the library
    // fails; the object must then not be used.
    bool choose(const DeviceShape *shapes, size_t count, DeviceError *error);

    // Writes "cublaslt 13.1.0 sm_90 132 SMs 0123456789abcdef": a hash (FNV-1a) of shapes and
    // algorithms.
    void write_id(char (&id)[kDeviceIdBytes]) const;

    // Enqueues the product of x with w[index]. Several threads may call it, with streams and
    // workspaces of their own. Returns false if the shape was not chosen, a pointer is not aligned,
    // or the library fails; nothing was enqueued then.
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
    std::mutex mutex_; // protects the plans' descriptions, which hold a product's bias
};

} // namespace stasis::kernels::device

#endif
