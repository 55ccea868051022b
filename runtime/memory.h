// Bulk memory: KV pages, converted weights, scratch. From the host's allocator if it gave one.
#pragma once

#include <cstddef>

#include "format/error.h"

namespace stasis {

struct Memory {
    void *user = nullptr;
    void *(*allocate)(void *user, size_t size_bytes, size_t alignment) = nullptr; // null: C heap
    void (*deallocate)(void *user, void *memory, size_t size_bytes, size_t alignment) = nullptr;

    // Throws Error(no_memory) naming the size. Alignment is 64 bytes.
    void *take(size_t size_bytes) const;
    void give_back(void *memory, size_t size_bytes) const;
};

} // namespace stasis
