// See memory.h. The program's own malloc stands before that of the C library (or of the address
// sanitizer, whose own is weak), for the program and for every library that it loads.
#include "tests/failures/memory.h"

#include <link.h>
#include <pthread.h>
#include <unwind.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>

namespace {

constexpr int64_t kNever = INT64_MAX / 2;

constinit std::atomic<int64_t> left{kNever}; // allocations until one fails

std::atomic<failures::Allocation> became{failures::Allocation::none};

struct Library {
    uintptr_t begin = 0, end = 0;
};

// Address range of libsentencepiece, looked up before anything fails.
Library find_sentencepiece() {
    Library found;
    dl_iterate_phdr(
        [](dl_phdr_info *info, size_t, void *to) {
            if (std::strstr(info->dlpi_name, "libsentencepiece") == nullptr) {
                return 0;
            }
            auto &library = *static_cast<Library *>(to);
            library.begin = UINTPTR_MAX;
            for (int i = 0; i < info->dlpi_phnum; ++i) {
                const auto &part = info->dlpi_phdr[i];
                const uintptr_t begin = info->dlpi_addr + part.p_vaddr;
                if (part.p_type == PT_LOAD) {
                    library.begin = begin < library.begin ? begin : library.begin;
                    library.end = begin + part.p_memsz;
                }
            }
            return 1;
        },
        &found);
    return found;
}

Library sentencepiece;

// Identifies the allocating library by the functions on the stack.
failures::Allocation fate() {
    auto fate = failures::Allocation::failed;
    _Unwind_Backtrace(
        [](_Unwind_Context *frame, void *found) {
            auto &result = *static_cast<failures::Allocation *>(found);
            const uintptr_t at = _Unwind_GetIP(frame);
            if (at >= sentencepiece.begin && at < sentencepiece.end) {
                result = failures::Allocation::spared;
            }
#ifdef STASIS_ADDRESS_SANITIZER
            if (_Unwind_FindEnclosingFunction(reinterpret_cast<void *>(at)) ==
                reinterpret_cast<void *>(pthread_getattr_np)) {
                result = failures::Allocation::of_sanitizer;
            }
#endif
            return result != failures::Allocation::failed ? _URC_END_OF_STACK : _URC_NO_REASON;
        },
        &fate);
    return fate;
}

bool fails_now() {
    if (left.load(std::memory_order_relaxed) > kNever / 2 ||
        left.fetch_sub(1, std::memory_order_relaxed) != 0) {
        return false;
    }
    became = fate();
    return became == failures::Allocation::failed;
}

} // namespace

namespace failures {

void fail_allocation(int64_t n) {
    sentencepiece = sentencepiece.end == 0 ? find_sentencepiece() : sentencepiece;
    became = Allocation::none;
    left.store(n);
}

Allocation end_of_failing() {
    left = kNever;
    return became;
}

Quiet::Quiet() : left_(left.exchange(kNever)) {}

Quiet::~Quiet() {
    left.store(left_);
}

} // namespace failures

#pragma GCC visibility push(default)

extern "C" {
#ifdef STASIS_ADDRESS_SANITIZER
#define STASIS_REAL(name) __interceptor_##name
#else
#define STASIS_REAL(name) __libc_##name
#endif
void *STASIS_REAL(memalign)(size_t alignment, size_t size);
void *STASIS_REAL(malloc)(size_t size);
void *STASIS_REAL(calloc)(size_t count, size_t size);
void *STASIS_REAL(realloc)(void *memory, size_t size);

void *malloc(size_t size) {
    return fails_now() ? (errno = ENOMEM, nullptr) : STASIS_REAL(malloc)(size);
}
void *calloc(size_t count, size_t size) {
    return fails_now() ? (errno = ENOMEM, nullptr) : STASIS_REAL(calloc)(count, size);
}
void *realloc(void *memory, size_t size) {
    return fails_now() ? (errno = ENOMEM, nullptr) : STASIS_REAL(realloc)(memory, size);
}
void *memalign(size_t alignment, size_t size) {
    return fails_now() ? (errno = ENOMEM, nullptr) : STASIS_REAL(memalign)(alignment, size);
}
void *aligned_alloc(size_t alignment, size_t size) {
    return memalign(alignment, size);
}
int posix_memalign(void **memory, size_t alignment, size_t size) {
    void *given = memalign(alignment, size);
    *memory = given != nullptr ? given : *memory;
    return given != nullptr ? 0 : ENOMEM;
}
} // extern "C"

#pragma GCC visibility pop

// The address sanitizer's operator new does not pass by malloc; libstdc++'s does, and is replaced
// all the same, so that one program is tested.
void *operator new(std::size_t size) {
    void *memory = malloc(size == 0 ? 1 : size);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}
void *operator new[](std::size_t size) {
    return operator new(size);
}
void *operator new(std::size_t size, const std::nothrow_t &) noexcept {
    return malloc(size == 0 ? 1 : size);
}
void *operator new[](std::size_t size, const std::nothrow_t &) noexcept {
    return malloc(size == 0 ? 1 : size);
}
void *operator new(std::size_t size, std::align_val_t alignment) {
    void *memory = memalign(static_cast<size_t>(alignment), size == 0 ? 1 : size);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}
extern "C" void free(void *memory) noexcept;
void operator delete(void *memory) noexcept {
    free(memory);
}
void operator delete[](void *memory) noexcept {
    free(memory);
}
void operator delete(void *memory, std::size_t) noexcept {
    free(memory);
}
void operator delete[](void *memory, std::size_t) noexcept {
    free(memory);
}
void operator delete(void *memory, std::align_val_t) noexcept {
    free(memory);
}
void operator delete(void *memory, std::size_t, std::align_val_t) noexcept {
    free(memory);
}
