// The memory of KV pages as a table of functions: host memory, or memory that the host cannot read,
// such as a GPU's. Outside a forward pass, the bytes of a page are accessed only through this
// table. Knows bytes only: neither their meaning nor how pages are pooled.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/host/memory.h"

namespace stasis {

// The address of a page. Not a pointer, so that no code reads through it by accident: it may be an
// address in device memory.
enum class PageAddress : uintptr_t { null = 0 };

// Host memory through which pages are copied from and to a memory that the host cannot read, with
// the copies enqueued on it, which are done in order. One thread at a time.
struct PageStage {
    uint8_t *data = nullptr;
    size_t size_bytes = 0;
};

// The functions may be called from any thread, several at a time, but never two that write the same
// page. Each except `read` and `write` is complete when it returns, as seen by every later call and
// forward pass. On failure they throw Error(device), and the bytes to be written are undefined.
struct PageMemory {
    void *user = nullptr; // outlives the pool
    // True: an address is a pointer that the host may use, and the functions from `take_stage` on
    // are null, because no stages are needed.
    bool on_host = false;
    // Bytes of pages that a caller with many pages should copy as one batch: enough work for all
    // threads, and a copy that takes far longer than its start.
    size_t batch_bytes = 0;
    // Returns memory aligned to 64 bytes, contents not set. Also throws Error(no_memory), naming
    // the size.
    PageAddress (*take)(void *user, size_t size_bytes) = nullptr;
    void (*give_back)(void *user, PageAddress address, size_t size_bytes) noexcept = nullptr;
    // Zeroes the bytes from `from_bytes` on in each of `rows` consecutive rows.
    void (*clear)(void *user, PageAddress address, size_t rows, size_t row_bytes,
                  size_t from_bytes) = nullptr;
    void (*copy)(void *user, PageAddress to, PageAddress from, size_t size_bytes) = nullptr;
    // Returns a stage of at least `size_bytes` bytes, contents not set. Also throws
    // Error(no_memory).
    PageStage *(*take_stage)(void *user, size_t size_bytes) = nullptr;
    // Waits for the copies enqueued.
    void (*give_back_stage)(void *user, PageStage *stage) noexcept = nullptr;
    // Begins to copy a part of a page to a stage, from `at_bytes` on. Until `finish`, the contents
    // of that part of the stage are undefined, and the page must be neither written nor given back.
    void (*read)(void *user, PageStage *stage, size_t at_bytes, PageAddress from,
                 size_t offset_bytes, size_t size_bytes) = nullptr;
    // Begins to copy a part of a stage to a page, from the page's beginning on. Until `finish`,
    // that part of the stage must not be written, and the page must not be used.
    void (*write)(void *user, PageStage *stage, size_t at_bytes, PageAddress to,
                  size_t size_bytes) = nullptr;
    // Waits for the copies enqueued. Throws the error of any that failed.
    void (*finish)(void *user, PageStage *stage) = nullptr;
};

// Returns the functions for host memory. `memory` must outlive the pool.
PageMemory host_pages(const Memory &memory);

} // namespace stasis
