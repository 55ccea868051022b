// The page pool: budget, free lists, reference counts; see page_pool.h. page_pool_prefixes.cpp has
// its index of what pages hold, page_pool_bytes.cpp their bytes.
#include "runtime/kv/page_pool.h"

#include <memory>
#include <new>

namespace stasis {

PageRef::PageRef(const PageRef &other) : page_(other.page_) {
    if (page_ != nullptr) {
        page_->references.fetch_add(1, std::memory_order_relaxed);
    }
}

// The last reference goes under the lock, where the index could give the page to another holder.
PageRef::~PageRef() {
    if (page_ == nullptr) {
        return;
    }
    uint32_t count = page_->references.load(std::memory_order_relaxed);
    while (count > 1) {
        if (page_->references.compare_exchange_weak(count, count - 1, std::memory_order_acq_rel)) {
            return;
        }
    }
    page_->pool->let_go(page_);
}

PagePool::PagePool(const PageMemory &memory, uint64_t budget_bytes, std::vector<PageShape> shapes)
    : memory_(memory), budget_bytes_(budget_bytes), shapes_(std::move(shapes)),
      free_(shapes_.size(), nullptr) {}

PagePool::~PagePool() {
    const Lock lock(mutex_);
    while (prefixes_.oldest() != nullptr) { // nobody holds a page any more
        forget_oldest(lock);
    }
    drop_free_memory(UINT64_MAX, lock);
}

// Gives a free page's memory back to the system.
void PagePool::drop_free_page(uint32_t group, const Lock &) noexcept {
    KvPage *page = free_[group];
    free_[group] = page->next_free;
    free_bytes_ -= shapes_[group].bytes();
    memory_.give_back(memory_.user, page->address, shapes_[group].bytes());
    delete page;
}

bool PagePool::make_room(uint64_t bytes) noexcept {
    const Lock lock(mutex_);
    uint64_t made = 0;
    for (;;) {
        for (uint32_t group = 0; group < free_.size(); ++group) {
            for (; made < bytes && free_[group] != nullptr; made += shapes_[group].bytes()) {
                drop_free_page(group, lock);
            }
        }
        if (made >= bytes || prefixes_.oldest() == nullptr) {
            return made > 0;
        }
        forget_oldest(lock);
    }
}

// Gives free pages' memory back to the system until `bytes` more fit into the budget.
bool PagePool::drop_free_memory(uint64_t bytes, const Lock &lock) noexcept {
    const auto fits = [&] {
        return bytes <= budget_bytes_ &&
               used_bytes_ + free_bytes_ + idle_bytes_ <= budget_bytes_ - bytes;
    };
    for (uint32_t group = 0; group < free_.size(); ++group) {
        while (!fits() && free_[group] != nullptr) {
            drop_free_page(group, lock);
        }
    }
    return fits();
}

// Books one page's bytes as used. Null: its memory is to be allocated.
KvPage *PagePool::book(uint32_t group, const Lock &lock) {
    const uint64_t bytes = shapes_[group].bytes();
    for (;;) {
        if (KvPage *page = free_[group]) {
            free_[group] = page->next_free;
            free_bytes_ -= bytes;
            used_bytes_ += bytes;
            return page;
        }
        if (drop_free_memory(bytes, lock)) {
            used_bytes_ += bytes;
            return nullptr;
        }
        if (prefixes_.oldest() == nullptr) {
            fail(Status::pool_exhausted,
                 "KV pool exhausted: %llu of %llu bytes in use, a page needs %llu more",
                 static_cast<Number>(used_bytes_), static_cast<Number>(budget_bytes_),
                 static_cast<Number>(bytes));
        }
        forget_oldest(lock);
    }
}

KvPage *PagePool::allocate(uint32_t group) {
    const size_t bytes = shapes_[group].bytes();
    auto page = std::make_unique<KvPage>();
    page->address = memory_.take(memory_.user, bytes);
    page->group = group;
    page->pool = this;
    return page.release();
}

PageRef PagePool::take(uint32_t group) {
    PageRef page = take_unset(group);
    clear_from(page, 0); // slots not yet written: never old (C9)
    return page;
}

PageRef PagePool::take_unset(uint32_t group) {
    KvPage *page = nullptr;
    {
        const Lock lock(mutex_);
        page = book(group, lock);
    }
    if (page == nullptr) {
        try {
            page = allocate(group);
        } catch (...) {
            const Lock lock(mutex_);
            used_bytes_ -= shapes_[group].bytes();
            throw;
        }
    }
    page->references.store(1, std::memory_order_relaxed);
    page->unclean = false;
    return PageRef(page);
}

void PagePool::to_free_list(KvPage *page, const Lock &) noexcept {
    page->prefix = nullptr;
    page->next_free = free_[page->group];
    free_[page->group] = page;
    free_bytes_ += shapes_[page->group].bytes();
}

// One reference less; the last one's page is free.
void PagePool::let_go(KvPage *page) noexcept {
    const Lock lock(mutex_);
    if (page->references.fetch_sub(1, std::memory_order_acq_rel) != 1) {
        return; // another thread has copied a reference meanwhile
    }
    const uint64_t bytes = shapes_[page->group].bytes();
    used_bytes_ -= bytes;
    if (page->prefix == nullptr) {
        to_free_list(page, lock);
        return;
    }
    idle_bytes_ += bytes;
    prefixes_.park(page->prefix);
    while (budget_bytes_ == UINT64_MAX && idle_bytes_ > kIdleBytesMax) {
        forget_oldest(lock);
    }
}

uint64_t PagePool::used_bytes() const {
    const Lock lock(mutex_);
    return used_bytes_;
}

uint64_t PagePool::room_bytes() const {
    return budget_bytes_ == UINT64_MAX ? UINT64_MAX : budget_bytes_ - used_bytes();
}

uint64_t PagePool::cached_bytes() const {
    const Lock lock(mutex_);
    return free_bytes_ + idle_bytes_;
}

uint64_t PagePool::idle_bytes() const {
    const Lock lock(mutex_);
    return idle_bytes_;
}

} // namespace stasis
