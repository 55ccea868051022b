// See memory.h. Knows neither what the memory is for nor how it is pooled.
#include "runtime/host/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>

namespace stasis {

namespace {

constexpr size_t kAlignment = 64; // a cache line, and the widest vector register
constexpr size_t kHugePageBytes = 2U << 20;

// Aligns large blocks to 2 MiB, so that the kernel can back them by huge pages: their first touch
// costs fewer faults, and they need fewer TLB entries.
void *take_from_heap(size_t size_bytes) {
    const bool huge = size_bytes >= 2 * kHugePageBytes;
    const size_t alignment = huge ? kHugePageBytes : kAlignment;
    if (size_bytes > SIZE_MAX - alignment) {
        return nullptr;
    }
    // aligned_alloc requires a multiple of the alignment, and may return null for 0 bytes.
    const size_t whole_bytes = (size_bytes / alignment + 1) * alignment;
    void *memory = std::aligned_alloc(alignment, whole_bytes);
    if (huge && memory != nullptr) {
        madvise(memory, size_bytes / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
    }
    return memory;
}

} // namespace

void *Memory::take(size_t size_bytes) const {
    void *memory = nullptr;
    if (allocate != nullptr) {
        memory = allocate(user, size_bytes, kAlignment);
    } else {
        memory = take_from_heap(size_bytes);
    }
    if (memory == nullptr) {
        fail(Status::no_memory, "no memory for %zu bytes", size_bytes);
    }
    if (reinterpret_cast<uintptr_t>(memory) % kAlignment != 0) {
        give_back(memory, size_bytes);
        fail(Status::invalid_argument,
             "the host's allocator returned memory that is not aligned to %zu bytes", kAlignment);
    }
    return memory;
}

void Memory::give_back(void *memory, size_t size_bytes) const {
    if (memory == nullptr) {
        return;
    }
    if (allocate != nullptr) {
        deallocate(user, memory, size_bytes, kAlignment);
    } else {
        std::free(memory);
    }
}

void Buffer::grow(size_t size_bytes) {
    if (size_bytes <= size_bytes_) {
        return;
    }
    void *data = memory_.take(size_bytes);
    memory_.give_back(data_, size_bytes_);
    data_ = data;
    size_bytes_ = size_bytes;
}

} // namespace stasis
