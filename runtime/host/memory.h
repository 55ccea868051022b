// Bulk memory: KV pages, weights that are not mapped, workspaces. It comes from the host's
// allocator if the host gave one, else from the C heap.
#pragma once

#include <cstddef>

#include "format/state/error.h"

namespace stasis {

struct Memory {
    void *user = nullptr;
    void *(*allocate)(void *user, size_t size_bytes, size_t alignment) = nullptr; // null: C heap
    void (*deallocate)(void *user, void *memory, size_t size_bytes, size_t alignment) = nullptr;

    // Throws Error(no_memory) naming the size. Alignment is 64 bytes.
    void *take(size_t size_bytes) const;
    void give_back(void *memory, size_t size_bytes) const;
};

// A block of bulk memory that grows and never shrinks; contents are lost when it grows.
class Buffer {
  public:
    explicit Buffer(const Memory &memory) : memory_(memory) {}
    ~Buffer() { memory_.give_back(data_, size_bytes_); }
    Buffer(const Buffer &) = delete;
    Buffer &operator=(const Buffer &) = delete;

    void grow(size_t size_bytes);
    void *data() const { return data_; }
    size_t size_bytes() const { return size_bytes_; }

  private:
    const Memory &memory_;
    void *data_ = nullptr;
    size_t size_bytes_ = 0;
};

} // namespace stasis
