// Where the bytes of KV pages lie, as functions: the host's memory, or one that the host cannot
// read, such as a GPU's. The one way to a page's bytes outside a forward pass. Knows bytes only:
// neither what they mean nor how pages are pooled.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/host/memory.h"

namespace stasis {

// Of a page. No pointer, so that nobody reads through it by accident: what lies there may be no
// memory of the host.
enum class PageAddress : uintptr_t { null = 0 };

// Room of the host that pages pass through on their way from and to a memory that it cannot read,
// with the copies that are under way there, which are done in order. One thread at a time.
struct PageStage {
    uint8_t *data = nullptr;
    size_t size_bytes = 0;
};

// Called from any thread, several at a time, though never two that write the same page. Each but
// `read` and `write` behaves as if it were done when it returns, for whoever is called next, a
// forward pass included. Fails with Error(device), which leaves the bytes that it was to write
// undefined.
struct PageMemory {
    void *user = nullptr; // outlives the pool
    // True: an address is a pointer that anyone may use, and there are no stages: null from
    // `take_stage` on.
    bool on_host = false;
    // Bytes of pages that are best done as one batch, by who has more of them: enough that all
    // threads have some, and that a copy takes far longer than to start it.
    size_t batch_bytes = 0;
    // Contents not set, aligned to 64 bytes. Throws Error(no_memory) as well, naming the size.
    PageAddress (*take)(void *user, size_t size_bytes) = nullptr;
    void (*give_back)(void *user, PageAddress address, size_t size_bytes) noexcept = nullptr;
    // Zeroes the bytes from `from_bytes` on in each of `rows` rows that follow each other.
    void (*clear)(void *user, PageAddress address, size_t rows, size_t row_bytes,
                  size_t from_bytes) = nullptr;
    void (*copy)(void *user, PageAddress to, PageAddress from, size_t size_bytes) = nullptr;
    // A stage of at least so many bytes, contents not set. Throws Error(no_memory) as well.
    PageStage *(*take_stage)(void *user, size_t size_bytes) = nullptr;
    // Waits for what is under way.
    void (*give_back_stage)(void *user, PageStage *stage) noexcept = nullptr;
    // Begins to copy a part of a page to a stage, from `at_bytes` on. Until `finish`, that part of
    // the stage may hold anything, and nobody may write to the page, or give it back.
    void (*read)(void *user, PageStage *stage, size_t at_bytes, PageAddress from,
                 size_t offset_bytes, size_t size_bytes) = nullptr;
    // Begins to copy a part of a stage to a page, from its beginning on. Until `finish`, nobody may
    // write to that part of the stage, or use the page.
    void (*write)(void *user, PageStage *stage, size_t at_bytes, PageAddress to,
                  size_t size_bytes) = nullptr;
    // Waits for what is under way. Throws what went wrong with any of it.
    void (*finish)(void *user, PageStage *stage) = nullptr;
};

// The host's, which outlives the pool.
PageMemory host_pages(const Memory &memory);

} // namespace stasis
