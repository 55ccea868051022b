// Copies pages' numbers between device memory and the host: a stage (page_memory.h), copies that
// are enqueued together, and a batch that is copied while another is worked on. Pages in host
// memory are used in place: nothing is allocated, copied or waited for. Knows bytes only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "runtime/host/threads.h"
#include "runtime/kv/page_pool.h"

namespace stasis {

// One thread at a time. The pages passed in must stay and must not be written until `finish` or the
// destructor has returned. Every function may throw Error(device) and Error(no_memory).
class PageStaging {
  public:
    explicit PageStaging(const PagePool &pool) : memory_(pool.memory()), pool_(pool) {}
    // Waits for the copies enqueued.
    ~PageStaging();
    PageStaging(const PageStaging &) = delete;
    PageStaging &operator=(const PageStaging &) = delete;

    // Reserves space for pages of `size_bytes` bytes in all; earlier contents are lost. Waits
    // first.
    void fit(size_t size_bytes);
    // Begins to copy a page's numbers, or `count` of them from `begin` on. They are valid after
    // `finish`, until the next `fit`.
    const uint16_t *read(const PageRef &page);
    const uint16_t *read(const PageRef &page, size_t begin, size_t count);
    // The same at once, with space reserved for these numbers alone.
    const uint16_t *read_now(const PageRef &page);
    const uint16_t *read_now(const PageRef &page, size_t begin, size_t count);
    // `place` returns the address at which the caller stores all numbers of a page that it holds
    // alone; `write` then begins to copy them to the page. The page has them after `finish`.
    uint16_t *place(const PageRef &page);
    void write(const PageRef &page, const uint16_t *numbers);
    // Waits for the copies enqueued. Throws the error of any that failed.
    void finish();

  private:
    size_t take_room(size_t size_bytes);

    const PageMemory &memory_;
    const PagePool &pool_;
    PageStage *stage_ = nullptr; // null: no page in device memory was used yet
    size_t used_bytes_ = 0;
};

// Calls work(i, numbers of pages[i]) for each page, on all threads. Throws the first exception of
// any call or copy.
void for_each_page(const PagePool &pool, Threads &threads, std::span<const PageRef *const> pages,
                   const std::function<void(size_t i, const uint16_t *numbers)> &work);

} // namespace stasis
