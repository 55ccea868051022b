// Where the bytes of KV pages lie, as functions: the host's memory, or one that the host cannot
// read, such as a GPU's. The one way to a page's bytes outside a forward pass. Knows bytes only:
// neither what they mean nor how pages are pooled.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/memory.h"

namespace stasis {

// Of a page. No pointer, so that nobody reads through it by accident: what lies there may be no
// memory of the host.
enum class PageAddress : uintptr_t { null = 0 };

// Called from any thread, several at a time, though never two that write the same page. Each
// behaves as if it were done when it returns, for whoever is called next, a forward pass included.
// Fails with Error(device), which leaves the bytes that it was to write undefined.
struct PageMemory {
    void *user = nullptr; // outlives the pool
    // True: an address is a pointer that anyone may use, and `read` and `write` are null.
    bool on_host = false;
    // Contents not set, aligned to 64 bytes. Throws Error(no_memory) as well, naming the size.
    PageAddress (*take)(void *user, size_t size_bytes) = nullptr;
    void (*give_back)(void *user, PageAddress address, size_t size_bytes) noexcept = nullptr;
    // Zeroes the bytes from `from_bytes` on in each of `rows` rows that follow each other.
    void (*clear)(void *user, PageAddress address, size_t rows, size_t row_bytes,
                  size_t from_bytes) = nullptr;
    void (*copy)(void *user, PageAddress to, PageAddress from, size_t size_bytes) = nullptr;
    // A part of a page to the host.
    void (*read)(void *user, void *to, PageAddress from, size_t offset_bytes,
                 size_t size_bytes) = nullptr;
    // A whole page from the host.
    void (*write)(void *user, PageAddress to, const void *from, size_t size_bytes) = nullptr;
};

// The host's, which outlives the pool.
PageMemory host_pages(const Memory &memory);

} // namespace stasis
