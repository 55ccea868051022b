// The module for CUDA devices: opens them, allocates their memory, and exports one symbol. The CUDA
// runtime is linked in and looks for the driver at the first call, so that the module loads on
// systems without one. Knows no kernels but by their families.
#include <climits>
#include <cstdio>
#include <new>

#include "runtime/kernels/cuda/driver.h"
#include "runtime/kernels/cuda/kernels.h"

namespace stasis::kernels::device {

namespace {

constexpr int kMajorLeast = 8; // the least compute capability that kernels are compiled for

void write_version(char (&text)[32], int version) { // 12040: 12.4
    std::snprintf(text, sizeof text, "%d.%d", version / 1000, version % 1000 / 10);
}

// Returns the number of devices; -1 with the reason if there is none.
int count_devices(DeviceError *error) {
    int count = 0, driver = 0;
    const cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaSuccess && count > 0) {
        return count;
    }
    cudaGetLastError();
    if (code == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
        driver > 0) {
        tell(error, DeviceError::unavailable,
             "the CUDA driver is too old: it is for CUDA %d.%d, this needs %d.%d or later",
             driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    } else if (code == cudaErrorInsufficientDriver) {
        tell(error, DeviceError::unavailable, "there is no CUDA driver");
    } else if (code == cudaSuccess || code == cudaErrorNoDevice) {
        tell(error, DeviceError::unavailable, "there is no CUDA device");
    } else {
        tell(error, DeviceError::unavailable, "CUDA cannot be used: %s (%s)",
             cudaGetErrorString(code), cudaGetErrorName(code));
    }
    return -1;
}

bool fill(Device *device, DeviceInfo *info, DeviceError *error) {
    const int index = device->index;
    int driver = 0, runtime = 0, major = 0, minor = 0, processors = 0, pools = 0;
    size_t free_bytes = 0, all_bytes = 0;
    cudaDeviceProp properties = {};
    const cudaError_t codes[] = {
        cudaDriverGetVersion(&driver),
        cudaRuntimeGetVersion(&runtime),
        cudaGetDeviceProperties(&properties, index),
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index),
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index),
        cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, index),
        cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, index),
    };
    for (const cudaError_t code : codes) {
        if (!passed(device, code, "asking for its properties", error)) {
            return false;
        }
    }
    if (major < kMajorLeast) {
        tell(error, DeviceError::unavailable,
             "cuda:%d (%s) has compute capability %d.%d, and %d.0 is the least that is supported",
             index, properties.name, major, minor, kMajorLeast);
        return false;
    }
    if (pools == 0) {
        tell(error, DeviceError::unavailable, "cuda:%d (%s) has no memory pools", index,
             properties.name);
        return false;
    }
    if (!enter(device, error) ||
        !passed(device, cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo", error)) {
        return false;
    }
    std::snprintf(info->name, sizeof info->name, "%.127s", properties.name);
    write_version(info->driver, driver);
    write_version(info->runtime, runtime);
    info->major = static_cast<uint32_t>(major), info->minor = static_cast<uint32_t>(minor);
    // Overlap in a recording is an edge of CUDA 12.3.
    device->overlaps = major >= 9 && driver >= 12030;
    info->multiprocessors = device->multiprocessors = static_cast<uint32_t>(processors);
    info->memory_bytes = all_bytes, info->free_bytes = free_bytes;
    return true;
}

// Creates a pool that caches released memory, and the stream for its allocations.
bool make_pool(Device *device, DeviceError *error) {
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = device->index;
    uint64_t keep_bytes = UINT64_MAX;
    return passed(device, cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking),
                  "cudaStreamCreate", error) &&
           passed(device, cudaMemPoolCreate(&device->pool, &properties), "cudaMemPoolCreate",
                  error) &&
           passed(
               device,
               cudaMemPoolSetAttribute(device->pool, cudaMemPoolAttrReleaseThreshold, &keep_bytes),
               "cudaMemPoolSetAttribute", error);
}

void close(Device *device) {
    const CallersContext callers;
    cudaSetDevice(device->index);
    unpin_products(device);
    if (device->pool != nullptr) {
        cudaMemPoolDestroy(device->pool);
    }
    if (device->stream != nullptr) {
        cudaStreamDestroy(device->stream);
    }
    cudaGetLastError();
    delete device;
}

Device *open(uint32_t index, DeviceInfo *info, DeviceError *error) {
    const CallersContext callers;
    const int count = count_devices(error);
    if (count < 0) {
        return nullptr;
    }
    if (index >= static_cast<uint32_t>(count)) {
        tell(error, DeviceError::unavailable, "cuda:%u: there %s %d device%s", index,
             count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
        return nullptr;
    }
    Device *device = new (std::nothrow) Device;
    if (device == nullptr) {
        tell(error, DeviceError::no_memory, "out of memory");
        return nullptr;
    }
    device->index = static_cast<int>(index);
    if (!fill(device, info, error) || !make_pool(device, error)) {
        error->kind =
            error->kind == DeviceError::no_memory ? error->kind : DeviceError::unavailable;
        close(device);
        return nullptr;
    }
    return device;
}

void *allocate_host(Device *device, size_t size_bytes, DeviceError *error) {
    const CallersContext callers;
    void *memory = nullptr;
    const size_t bytes = size_bytes == 0 ? 1 : size_bytes;
    if (!enter(device, error) ||
        !passed(device, cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc",
                error)) {
        return nullptr;
    }
    return memory;
}

void release_host(Device *device, void *memory) {
    const CallersContext callers;
    cudaSetDevice(device->index); // also if lost, because it is host memory
    cudaFreeHost(memory);
    cudaGetLastError();
}

cudaError_t take(Device *device, size_t bytes, void **memory) {
    const cudaError_t code = cudaMallocFromPoolAsync(memory, bytes, device->pool, device->stream);
    // After the wait the memory may be used on every stream.
    return code == cudaSuccess ? cudaStreamSynchronize(device->stream) : code;
}

DeviceTable make_table() {
    DeviceTable table;
    table.name = "cuda";
    table.open = open;
    table.close = close;
    table.allocate = allocate;
    table.release = release;
    table.allocate_host = allocate_host;
    table.release_host = release_host;
    add_queues(table);
    add_rows(table);
    add_heads(table);
    add_products(table);
    add_attention(table);
    add_quant(table);
    add_draw(table);
    add_pinned(table);
    return table;
}

} // namespace

void *allocate(Device *device, size_t size_bytes, DeviceError *error) {
    const CallersContext callers;
    if (!enter(device, error)) {
        return nullptr;
    }
    void *memory = nullptr;
    const size_t bytes = size_bytes == 0 ? 1 : size_bytes;
    cudaError_t code = take(device, bytes, &memory);
    if (code == cudaErrorMemoryAllocation) {
        // Released memory may still be in use by the stream, or cached in pieces that are all too
        // small. Returned to the device, the pieces can form a larger one.
        cudaGetLastError();
        cudaStreamSynchronize(device->stream);
        cudaMemPoolTrimTo(device->pool, 0);
        code = take(device, bytes, &memory);
    }
    if (code == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, all_bytes = 0;
        cudaMemGetInfo(&free_bytes, &all_bytes);
        cudaGetLastError();
        tell(error, DeviceError::no_memory,
             "cuda:%d: out of memory: %zu bytes asked for, %zu of %zu are free", device->index,
             size_bytes, free_bytes, all_bytes);
        return nullptr;
    }
    return passed(device, code, "cudaMallocFromPoolAsync", error) ? memory : nullptr;
}

void release(Device *device, void *memory) {
    const CallersContext callers;
    DeviceError error;
    if (memory != nullptr && enter(device, &error)) {
        passed(device, cudaFreeAsync(memory, device->stream), "cudaFreeAsync", &error);
    }
}

} // namespace stasis::kernels::device

extern "C" [[gnu::visibility("default")]] const stasis::kernels::DeviceTable *
stasis_device_table() {
    static const stasis::kernels::DeviceTable table = stasis::kernels::device::make_table();
    return &table;
}
