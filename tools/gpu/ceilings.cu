// Measures the highest rates of a GPU: copying, reading, FP32 FMAs, cuBLASLt's bf16 products, the
// link to the host. A separate program for tools/gpu_check. Must not know the library.
// Usage: gpu_ceilings [DEVICE]. Prints one JSON object: "device" (facts), "ceilings" (by name:
// value in bytes or operations a second, how), "problems" (measurements that failed, and why).
// cuBLASLt is opened when it is needed, so that the program also starts without it.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define STASIS_CUBLASLT 1
#endif

namespace {

constexpr size_t kMebibyte = size_t{1} << 20;
constexpr unsigned kThreads = 256;

void check(cudaError_t error, const char *doing) {
    if (error != cudaSuccess) {
        throw std::runtime_error(std::string(doing) + ": " + cudaGetErrorString(error));
    }
}

// Memory of the device, or pinned memory of the host.
struct Memory {
    void *data = nullptr;
    size_t size_bytes;
    bool pinned;

    explicit Memory(size_t bytes, bool on_host = false) : size_bytes(bytes), pinned(on_host) {
        check(on_host ? cudaMallocHost(&data, bytes) : cudaMalloc(&data, bytes), "taking memory");
    }
    ~Memory() { pinned ? cudaFreeHost(data) : cudaFree(data); }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
};

struct Event {
    cudaEvent_t event = nullptr;
    Event() { check(cudaEventCreate(&event), "making an event"); }
    ~Event() { cudaEventDestroy(event); }
    Event(const Event &) = delete;
    Event &operator=(const Event &) = delete;
};

// Returns the shortest time of `work`, which enqueues `count` times the same. Calls it until the
// clocks have risen, and then some twenty times.
double best_seconds(int count, const std::function<void()> &work) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    do {
        work();
        check(cudaDeviceSynchronize(), "warming up");
    } while (Clock::now() - begin < std::chrono::milliseconds(100));
    const Event start, stop;
    double best = 0;
    for (int i = 0; i < 20; ++i) {
        check(cudaEventRecord(start.event), "an event");
        work();
        check(cudaGetLastError(), "a launch");
        check(cudaEventRecord(stop.event), "an event");
        check(cudaEventSynchronize(stop.event), "measuring");
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, start.event, stop.event), "an event's time");
        const double seconds = static_cast<double>(milliseconds) / 1e3 / count;
        best = i == 0 ? seconds : std::min(best, seconds);
    }
    return best;
}

struct Found {
    double value = 0; // per second
    std::string how;

    void better(double other, const std::string &by) {
        if (other > value) {
            value = other, how = by;
        }
    }
};

// Finite bf16 values of either sign near 1 that do not repeat: products of zeros would take less
// power and be faster.
__global__ void fill(uint32_t *to, size_t count) {
    const size_t stride = size_t{gridDim.x} * blockDim.x;
    for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
        uint32_t bits = static_cast<uint32_t>(i) * 2654435761U + 12345U;
        bits = (bits ^ (bits >> 15)) * 2246822519U;
        to[i] = ((bits ^ (bits >> 13)) & 0x807F807FU) | 0x3F003F00U;
    }
}

void fill_memory(const Memory &memory) {
    fill<<<1024, kThreads>>>(static_cast<uint32_t *>(memory.data), memory.size_bytes / 4);
    check(cudaDeviceSynchronize(), "filling memory");
}

// Reads every byte once, 16 at a time; each thread has kLoads reads in flight.
template <int kLoads> __global__ void read_all(const uint4 *from, size_t count, uint32_t *to) {
    uint32_t sum = 0;
    const size_t stride = size_t{gridDim.x} * blockDim.x;
    size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
    for (; i + stride * (kLoads - 1) < count; i += stride * kLoads) {
        uint4 parts[kLoads];
#pragma unroll
        for (int k = 0; k < kLoads; ++k) {
            parts[k] = __ldg(from + i + stride * static_cast<size_t>(k));
        }
#pragma unroll
        for (int k = 0; k < kLoads; ++k) {
            sum ^= parts[k].x ^ parts[k].y ^ parts[k].z ^ parts[k].w;
        }
    }
    for (; i < count; i += stride) {
        sum ^= from[i].x;
    }
    if (sum == 0x12345678U) { // so that the compiler removes no read
        *to = sum;
    }
}

constexpr int kChains = 16; // more than an FMA's latency needs, beside other warps
constexpr int kRounds = 1 << 16;

__global__ void multiply_add(float x, float y, float *to) {
    float sums[kChains];
#pragma unroll
    for (int k = 0; k < kChains; ++k) {
        sums[k] = static_cast<float>(threadIdx.x + static_cast<unsigned>(k));
    }
#pragma unroll 4
    for (int i = 0; i < kRounds; ++i) {
#pragma unroll
        for (int k = 0; k < kChains; ++k) {
            sums[k] = __fmaf_rn(sums[k], x, y);
        }
    }
    float sum = 0;
#pragma unroll
    for (int k = 0; k < kChains; ++k) {
        sum += sums[k];
    }
    if (sum == -1.0F) {
        *to = sum;
    }
}

Found measure_copy() {
    const Memory from(1024 * kMebibyte), to(1024 * kMebibyte);
    fill_memory(from);
    const double seconds = best_seconds(1, [&] {
        check(cudaMemcpyAsync(to.data, from.data, from.size_bytes, cudaMemcpyDeviceToDevice),
              "copying");
    });
    return {2.0 * static_cast<double>(from.size_bytes) / seconds,
            "cudaMemcpy of 1 GiB, bytes read and written"};
}

Found measure_read(const cudaDeviceProp &device) {
    const Memory from(2048 * kMebibyte), to(256);
    fill_memory(from);
    const auto *data = static_cast<const uint4 *>(from.data);
    auto *sum = static_cast<uint32_t *>(to.data);
    const size_t count = from.size_bytes / sizeof(uint4);
    Found found;
    for (const unsigned blocks : {4U, 8U, 16U, 32U}) {
        const unsigned grid = blocks * static_cast<unsigned>(device.multiProcessorCount);
        const std::string how = std::to_string(blocks) + " blocks of 256 a multiprocessor, ";
        const auto rate = [&](double seconds) {
            return static_cast<double>(from.size_bytes) / seconds;
        };
        const auto four = [&] { read_all<4><<<grid, kThreads>>>(data, count, sum); };
        const auto eight = [&] { read_all<8><<<grid, kThreads>>>(data, count, sum); };
        found.better(rate(best_seconds(1, four)), how + "4 loads of 16 bytes ahead");
        found.better(rate(best_seconds(1, eight)), how + "8 loads of 16 bytes ahead");
    }
    return found;
}

Found measure_multiply_add(const cudaDeviceProp &device) {
    const Memory to(256);
    Found found;
    for (const unsigned blocks : {2U, 4U, 8U}) {
        const unsigned grid = blocks * static_cast<unsigned>(device.multiProcessorCount);
        const double seconds = best_seconds(1, [&] {
            multiply_add<<<grid, kThreads>>>(0.999F, 0.001F, static_cast<float *>(to.data));
        });
        found.better(2.0 * kChains * kRounds * grid * kThreads / seconds,
                     "FMAs of 16 chains a thread, " + std::to_string(blocks * kThreads) +
                         " threads a multiprocessor");
    }
    return found;
}

Found measure_link(bool to_device) {
    const Memory here(256 * kMebibyte, true), there(256 * kMebibyte);
    fill_memory(there);
    check(cudaMemcpy(here.data, there.data, here.size_bytes, cudaMemcpyDefault), "copying");
    const double seconds = best_seconds(1, [&] {
        check(cudaMemcpyAsync(to_device ? there.data : here.data,
                              to_device ? here.data : there.data, here.size_bytes,
                              cudaMemcpyDefault),
              "copying");
    });
    return {static_cast<double>(here.size_bytes) / seconds, "256 MiB from or to pinned memory"};
}

#ifdef STASIS_CUBLASLT

// The calls of the library.
struct Lt {
    void *library = nullptr;
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtMatmulDescCreate) make_product;
    decltype(&cublasLtMatmulDescSetAttribute) set_product;
    decltype(&cublasLtMatmulDescDestroy) drop_product;
    decltype(&cublasLtMatrixLayoutCreate) make_layout;
    decltype(&cublasLtMatrixLayoutDestroy) drop_layout;
    decltype(&cublasLtMatmulPreferenceCreate) make_preference;
    decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference;
    decltype(&cublasLtMatmulPreferenceDestroy) drop_preference;
    decltype(&cublasLtMatmulAlgoGetHeuristic) choose;
    decltype(&cublasLtMatmul) run;
    cublasLtHandle_t handle = nullptr;

    template <typename Call> void find(Call &call, const char *name) {
        call = reinterpret_cast<Call>(dlsym(library, name));
        if (call == nullptr) {
            throw std::runtime_error(std::string("libcublasLt has no ") + name);
        }
    }

    Lt() {
        const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
        library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL); // held to the end
        if (library == nullptr) {
            const char *why = dlerror();
            throw std::runtime_error(why != nullptr ? why : name + " cannot be loaded");
        }
        find(create, "cublasLtCreate");
        find(destroy, "cublasLtDestroy");
        find(make_product, "cublasLtMatmulDescCreate");
        find(set_product, "cublasLtMatmulDescSetAttribute");
        find(drop_product, "cublasLtMatmulDescDestroy");
        find(make_layout, "cublasLtMatrixLayoutCreate");
        find(drop_layout, "cublasLtMatrixLayoutDestroy");
        find(make_preference, "cublasLtMatmulPreferenceCreate");
        find(set_preference, "cublasLtMatmulPreferenceSetAttribute");
        find(drop_preference, "cublasLtMatmulPreferenceDestroy");
        find(choose, "cublasLtMatmulAlgoGetHeuristic");
        find(run, "cublasLtMatmul");
        good(create(&handle), "cublasLtCreate");
    }
    ~Lt() {
        if (handle != nullptr) {
            destroy(handle);
        }
    }
    Lt(const Lt &) = delete;
    Lt &operator=(const Lt &) = delete;

    static void good(cublasStatus_t status, const char *doing) {
        if (status != CUBLAS_STATUS_SUCCESS) {
            throw std::runtime_error(std::string(doing) + ": status " +
                                     std::to_string(static_cast<int>(status)));
        }
    }
};

struct Shape {
    uint64_t outputs, depth, rows;
};

// y [rows][outputs] = x [rows][depth] times w [outputs][depth], each row-major.
class Product {
  public:
    Product(const Lt &lt, const Shape &shape) : lt_(lt) {
        const cublasOperation_t transposed = CUBLAS_OP_T;
        Lt::good(lt.make_product(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
        Lt::good(
            lt.set_product(product_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
            "a product");
        layout(w_, shape.depth, shape.outputs);
        layout(x_, shape.depth, shape.rows);
        layout(y_, shape.outputs, shape.rows);
        Lt::good(lt.make_preference(&preference_), "a preference");
        const size_t bytes = kWorkspaceBytes;
        Lt::good(lt.set_preference(preference_, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                   sizeof bytes),
                 "a preference");
        int count = 0;
        found_.resize(kAlgorithms);
        Lt::good(lt.choose(lt.handle, product_, w_, x_, y_, y_, preference_, kAlgorithms,
                           found_.data(), &count),
                 "choosing an algorithm");
        found_.resize(static_cast<size_t>(count));
    }
    ~Product() {
        lt_.drop_preference(preference_);
        for (cublasLtMatrixLayout_t each : {w_, x_, y_}) {
            lt_.drop_layout(each);
        }
        lt_.drop_product(product_);
    }
    Product(const Product &) = delete;
    Product &operator=(const Product &) = delete;

    size_t algorithms() const { return found_.size(); }
    void enqueue(size_t algorithm, const void *w, const void *x, void *y, void *workspace) const {
        const float one = 1, zero = 0;
        Lt::good(lt_.run(lt_.handle, product_, &one, w, w_, x, x_, &zero, y, y_, y, y_,
                         &found_[algorithm].algo, workspace, kWorkspaceBytes, nullptr),
                 "cublasLtMatmul");
    }

    static constexpr size_t kWorkspaceBytes = 64 * kMebibyte;

  private:
    static constexpr int kAlgorithms = 6;

    void layout(cublasLtMatrixLayout_t &made, uint64_t rows, uint64_t columns) {
        Lt::good(lt_.make_layout(&made, CUDA_R_16BF, rows, columns, static_cast<int64_t>(rows)),
                 "a layout");
    }

    const Lt &lt_;
    cublasLtMatmulDesc_t product_ = nullptr;
    cublasLtMatrixLayout_t w_ = nullptr, x_ = nullptr, y_ = nullptr;
    cublasLtMatmulPreference_t preference_ = nullptr;
    std::vector<cublasLtMatmulHeuristicResult_t> found_;
};

// Returns the seconds of one product by the best algorithm. The weights differ each time, as in a
// model.
double product_seconds(const Lt &lt, const Shape &shape, const Memory &weights, const Memory &x,
                       const Memory &y) {
    const Product product(lt, shape);
    const Memory workspace(Product::kWorkspaceBytes);
    const size_t bytes = shape.outputs * shape.depth * 2;
    const size_t copies = std::max<size_t>(1, weights.size_bytes / bytes);
    constexpr int kCount = 16;
    double best = 0;
    for (size_t algorithm = 0; algorithm < product.algorithms(); ++algorithm) {
        const double seconds = best_seconds(kCount, [&] {
            for (size_t i = 0; i < kCount; ++i) {
                const char *w = static_cast<const char *>(weights.data) + i % copies * bytes;
                product.enqueue(algorithm, w, x.data, y.data, workspace.data);
            }
        });
        best = best == 0 ? seconds : std::min(best, seconds);
    }
    if (best == 0) {
        throw std::runtime_error("cuBLASLt has no algorithm for this shape");
    }
    return best;
}

// Returns the seconds of the products together, each by the best of several algorithms.
Found measure_products(const std::vector<Shape> &shapes) {
    const Lt lt;
    const Memory weights(768 * kMebibyte), x(256 * kMebibyte), y(256 * kMebibyte);
    fill_memory(weights);
    fill_memory(x);
    double operations = 0, seconds = 0;
    std::string how;
    for (const Shape &shape : shapes) {
        const double took = product_seconds(lt, shape, weights, x, y);
        const double work = 2.0 * static_cast<double>(shape.outputs * shape.depth * shape.rows);
        operations += work, seconds += took;
        how += (how.empty() ? "" : ", ") + std::to_string(shape.rows) + " x " +
               std::to_string(shape.depth) + " x " + std::to_string(shape.outputs) + ": " +
               std::to_string(static_cast<int>(work / took / 1e12)) + " TFLOP/s";
    }
    return {operations / seconds, how};
}

// The matrices of one layer of a model of 1.1 billion parameters, and of 512 tokens.
Found measure_prefill_products() {
    return measure_products(
        {{2560, 2048, 512}, {2048, 2048, 512}, {11264, 2048, 512}, {2048, 5632, 512}});
}

Found measure_large_product() {
    return measure_products({{8192, 8192, 8192}});
}

#else

Found measure_prefill_products() {
    throw std::runtime_error("built without cublasLt.h");
}

Found measure_large_product() {
    throw std::runtime_error("built without cublasLt.h");
}

#endif

// Returns the text as a JSON string.
std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (const char c : text) {
        out += c == '"' || c == '\\'                  ? std::string("\\") + c
               : static_cast<unsigned char>(c) < 0x20 ? " "
                                                      : std::string(1, c);
    }
    return out + "\"";
}

std::string version_text(int version) { // 13020: "13.2"
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void print_device(const cudaDeviceProp &device) {
    int driver = 0, runtime = 0;
    check(cudaDriverGetVersion(&driver), "the driver's version");
    check(cudaRuntimeGetVersion(&runtime), "the runtime's version");
    std::printf("{\"device\": {\"name\": %s, \"compute_capability\": \"%d.%d\", "
                "\"multiprocessors\": %d, \"memory_bytes\": %zu, \"l2_bytes\": %d, "
                "\"cuda_driver\": \"%s\", \"cuda_runtime\": \"%s\"},\n \"ceilings\": {",
                quoted(device.name).c_str(), device.major, device.minor, device.multiProcessorCount,
                device.totalGlobalMem, device.l2CacheSize, version_text(driver).c_str(),
                version_text(runtime).c_str());
}

int measure(int index) {
    check(cudaSetDevice(index), "opening the device");
    cudaDeviceProp device;
    check(cudaGetDeviceProperties(&device, index), "the device's properties");
    const std::pair<const char *, std::function<Found()>> measures[] = {
        {"copy", measure_copy},
        {"read", [&] { return measure_read(device); }},
        {"fma_fp32", [&] { return measure_multiply_add(device); }},
        {"to_device", [] { return measure_link(true); }},
        {"to_host", [] { return measure_link(false); }},
        {"gemm_bf16_prefill", measure_prefill_products},
        {"gemm_bf16_8192", measure_large_product},
    };
    print_device(device);
    std::string problems, comma;
    for (const auto &[name, take] : measures) {
        try {
            const Found found = take();
            std::printf("%s\n  %s: {\"value\": %.6g, \"how\": %s}", comma.c_str(),
                        quoted(name).c_str(), found.value, quoted(found.how).c_str());
            comma = ",";
        } catch (const std::exception &problem) {
            problems += (problems.empty() ? "\n  " : ",\n  ") + quoted(name) + ": " +
                        quoted(problem.what());
        }
    }
    std::printf("},\n \"problems\": {%s}}\n", problems.c_str());
    return 0;
}

} // namespace

int main(int count, char **arguments) {
    try {
        return measure(count > 1 ? std::atoi(arguments[1]) : 0);
    } catch (const std::exception &problem) {
        std::fprintf(stderr, "gpu_ceilings: %s\n", problem.what());
        return 1;
    }
}
