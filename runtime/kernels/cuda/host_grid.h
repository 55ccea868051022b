// A grid of threads on the host: it provides CUDA's language features to kernels, for tests. The
// threads of a block are fibers of one host thread that switch at barriers and shuffles. Blocks run
// one after the other, and one grid runs at a time in a process. The program ends with a message if
// threads reach different barriers, or end while others wait, which a kernel must not do. A
// sanitizer reports accesses past the requested dynamic shared memory. Arithmetic runs in the
// floating-point environment of C2, which `run` enters.
#pragma once

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __shared__ static
#define __grid_constant__

struct dim3 {
    unsigned x = 1, y = 1, z = 1;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};

namespace stasis::kernels::device::host_grid {

struct Index {
    unsigned x, y, z;
};

// The indices of the thread that runs now.
extern Index thread, block;
extern dim3 block_size, grid_size;

void run(dim3 blocks, unsigned threads, size_t shared_bytes, const std::function<void()> &body);

// How this device decides that a result is tiny: by the result rounded to 24 bits, as the contract
// does; by the exact result; or by the denormal that it would be. See arithmetic.h.
enum class Tiny { rounded, exact, denormal };
inline constexpr Tiny kEveryTiny[] = {Tiny::rounded, Tiny::exact, Tiny::denormal};
extern Tiny tiny;

float fma(float a, float b, float c);
float mul(float a, float b);
float div(float a, float b);

// Returns c + the sum of 4 products of bytes. Bytes of x are signed; bytes of w are signed in
// dot_signed only.
inline int dot_signed(uint32_t w, uint32_t x, int c) {
    for (unsigned bit = 0; bit < 32; bit += 8) {
        c += static_cast<int8_t>(w >> bit) * static_cast<int8_t>(x >> bit);
    }
    return c;
}
inline int dot_unsigned(uint32_t w, uint32_t x, int c) {
    for (unsigned bit = 0; bit < 32; bit += 8) {
        c += static_cast<uint8_t>(w >> bit) * static_cast<int8_t>(x >> bit);
    }
    return c;
}

void block_barrier();
// Turns that one warp passes and another awaits (grid.h).
void await_turn(unsigned number);
void pass_turn(unsigned number);
// Every lane passes a value; returns the value of lane `from` of the same warp, or the lane's own
// if `from` does not exist.
uint64_t exchange(uint64_t value, unsigned from);
// Returns whether any thread of the block passed true.
bool any_of_block(bool value);
void *shared_memory();

// `waited` records that a thread has waited for earlier work. Each thread must have when it ends.
void waited();
void end_of_kernel();
// If set, called when each thread begins (false) and after it has waited (true).
extern std::function<void(bool)> on_thread;

// Copies 16 bytes as late as possible, when the copy's group is waited for. Until then the
// destination holds 0xFF.
void copy_later(void *to, const void *from);
void end_group();
void wait_groups(unsigned left); // for all groups of this thread but the `left` last ones

template <typename T> uint64_t bits_of(T value) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}
template <typename T> T value_of(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

} // namespace stasis::kernels::device::host_grid

#define threadIdx (stasis::kernels::device::host_grid::thread)
#define blockIdx (stasis::kernels::device::host_grid::block)
#define blockDim (stasis::kernels::device::host_grid::block_size)
#define gridDim (stasis::kernels::device::host_grid::grid_size)

inline void __syncthreads() {
    stasis::kernels::device::host_grid::block_barrier();
}
inline void __threadfence() {}
inline int __syncthreads_or(int value) {
    return stasis::kernels::device::host_grid::any_of_block(value != 0) ? 1 : 0;
}
inline void __syncwarp(unsigned = 0xFFFFFFFFU) {
    stasis::kernels::device::host_grid::exchange(0, 0);
}
inline int __any_sync(unsigned, int value) {
    namespace grid = stasis::kernels::device::host_grid;
    uint64_t any = value != 0 ? 1 : 0;
    for (unsigned mask = 1; mask < 32; mask *= 2) {
        any |= grid::exchange(any, (threadIdx.x % 32) ^ mask);
    }
    return any != 0 ? 1 : 0;
}
inline unsigned __reduce_min_sync(unsigned, unsigned value) {
    namespace grid = stasis::kernels::device::host_grid;
    for (unsigned mask = 1; mask < 32; mask *= 2) {
        const uint64_t other = grid::exchange(value, (threadIdx.x % 32) ^ mask);
        value = other < value ? static_cast<unsigned>(other) : value;
    }
    return value;
}
template <typename T> T __shfl_sync(unsigned, T value, int from) {
    namespace grid = stasis::kernels::device::host_grid;
    return grid::value_of<T>(
        grid::exchange(grid::bits_of(value), static_cast<unsigned>(from) % 32));
}
template <typename T> T __shfl_xor_sync(unsigned, T value, int mask) {
    namespace grid = stasis::kernels::device::host_grid;
    return grid::value_of<T>(
        grid::exchange(grid::bits_of(value), (threadIdx.x % 32) ^ static_cast<unsigned>(mask)));
}
template <typename T> T __shfl_down_sync(unsigned, T value, unsigned by) {
    namespace grid = stasis::kernels::device::host_grid;
    const unsigned lane = threadIdx.x % 32;
    return grid::value_of<T>(
        grid::exchange(grid::bits_of(value), lane + by < 32 ? lane + by : lane));
}
template <typename T> T __shfl_up_sync(unsigned, T value, unsigned by) {
    namespace grid = stasis::kernels::device::host_grid;
    const unsigned lane = threadIdx.x % 32;
    return grid::value_of<T>(grid::exchange(grid::bits_of(value), lane >= by ? lane - by : lane));
}
template <typename T> T __ldcg(const T *place) {
    return *place;
}
// Atomic for the thread sanitizer, which treats fibers as threads.
template <typename T> T atomicMin(T *place, T value) {
    std::atomic_ref<T> there(*place);
    T before = there.load(std::memory_order_relaxed);
    while (value < before && !there.compare_exchange_weak(before, value)) {
    }
    return before;
}
template <typename T> T atomicAdd(T *place, T value) {
    return std::atomic_ref<T>(*place).fetch_add(value, std::memory_order_relaxed);
}

namespace stasis::kernels::device {

template <typename T> T *dynamic_shared() {
    return static_cast<T *>(host_grid::shared_memory());
}

inline void let_next_begin() {}
using host_grid::await_turn;
using host_grid::pass_turn;
// Reads the memory, so that an invalid address is found.
inline void ask_for(const void *begin, size_t size_bytes, unsigned thread, unsigned count) {
    const auto *bytes = static_cast<const volatile unsigned char *>(begin);
    for (size_t at = size_t{thread} * 128; at < size_bytes; at += size_t{count} * 128) {
        static_cast<void>(bytes[at]);
    }
}
inline void wait_for_previous() {
    host_grid::waited();
}

} // namespace stasis::kernels::device
