// The way of pages' numbers between a far memory and the host: a stage (page_memory.h) of their
// own, copies that are enqueued together, and a batch that is on its way while another is worked
// on. Pages of the host are used where they lie: for them nothing is taken, copied or waited for.
// Knows bytes only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "runtime/host/threads.h"
#include "runtime/kv/page_pool.h"

namespace stasis {

// One thread at a time. The pages that it was given stay, and are written by nobody, until it is
// finished or gone. Everything may throw Error(device), Error(no_memory).
class PageStaging {
  public:
    explicit PageStaging(const PagePool &pool) : memory_(pool.memory()), pool_(pool) {}
    // Waits for what is under way.
    ~PageStaging();
    PageStaging(const PageStaging &) = delete;
    PageStaging &operator=(const PageStaging &) = delete;

    // Room for pages of so many bytes in all; what was in it is lost. Waits first.
    void fit(size_t size_bytes);
    // Begins to bring a page's numbers, or `count` of them from `begin` on; they lie there after
    // `finish`, until the next `fit`.
    const uint16_t *read(const PageRef &page);
    const uint16_t *read(const PageRef &page, size_t begin, size_t count);
    // The same at once, with room made for these alone.
    const uint16_t *read_now(const PageRef &page);
    const uint16_t *read_now(const PageRef &page, size_t begin, size_t count);
    // Where all numbers of a page that one caller holds are to be put, and what then begins to take
    // them to the page: it has them after `finish`.
    uint16_t *place(const PageRef &page);
    void write(const PageRef &page, const uint16_t *numbers);
    // Waits.
    void finish();

  private:
    size_t take_room(size_t size_bytes);

    const PageMemory &memory_;
    const PagePool &pool_;
    PageStage *stage_ = nullptr; // null: no far page has come yet
    size_t used_bytes_ = 0;
};

// Calls work(i, numbers of pages[i]) for each page, on all threads. Throws the first that any of it
// throws.
void for_each_page(const PagePool &pool, Threads &threads, std::span<const PageRef *const> pages,
                   const std::function<void(size_t i, const uint16_t *numbers)> &work);

} // namespace stasis
