// Errors of the CUDA runtime as text, and the caller's context; see driver.h.
#include "runtime/kernels/cuda/driver.h"

namespace stasis::kernels::device {

namespace {

// Reports whether an error makes the device unusable for the rest of the process.
bool loses_device(cudaError_t code) {
    switch (static_cast<int>(code)) {
    case 226: // cudaErrorContained, which older toolkits do not name
    case 721: // cudaErrorTensorMemoryLeak, likewise
    case cudaErrorMpsClientTerminated:
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDeviceUninitialized:
    case cudaErrorCudartUnloading:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
        return true;
    default:
        return false;
    }
}

// The driver's own functions, if a driver exists; the module does not link to it.
struct Driver {
    decltype(&cuCtxGetCurrent) get_current = nullptr;
    decltype(&cuCtxSetCurrent) set_current = nullptr;

    Driver() {
        get_current = reinterpret_cast<decltype(get_current)>(find("cuCtxGetCurrent"));
        set_current = reinterpret_cast<decltype(set_current)>(find("cuCtxSetCurrent"));
    }
    static void *find(const char *name) {
        constexpr unsigned kVersion = 12000; // both functions are older
        void *function = nullptr;
        cudaDriverEntryPointQueryResult found = {};
        const cudaError_t code =
            cudaGetDriverEntryPointByVersion(name, &function, kVersion, cudaEnableDefault, &found);
        cudaGetLastError();
        return code == cudaSuccess && found == cudaDriverEntryPointSuccess ? function : nullptr;
    }
};

const Driver &driver() {
    static const Driver functions;
    return functions;
}

} // namespace

CallersContext::CallersContext() {
    if (driver().get_current == nullptr || driver().get_current(&before_) != CUDA_SUCCESS) {
        before_ = nullptr;
    }
}

CallersContext::~CallersContext() {
    if (driver().set_current != nullptr) {
        driver().set_current(before_);
    }
}

bool passed(Device *device, cudaError_t code, const char *call, DeviceError *error) {
    if (code == cudaSuccess) {
        return true;
    }
    cudaGetLastError();
    DeviceError::Kind kind =
        code == cudaErrorMemoryAllocation ? DeviceError::no_memory : DeviceError::failed;
    if (loses_device(code)) {
        device->lost = true;
        kind = DeviceError::lost;
    }
    tell(error, kind, "cuda:%d: %s: %s (%s)", device->index, call, cudaGetErrorString(code),
         cudaGetErrorName(code));
    return false;
}

bool enter(Device *device, DeviceError *error) {
    if (device->lost) {
        tell(error, DeviceError::lost, "cuda:%d was lost by an earlier error", device->index);
        return false;
    }
    return passed(device, cudaSetDevice(device->index), "cudaSetDevice", error);
}

} // namespace stasis::kernels::device
