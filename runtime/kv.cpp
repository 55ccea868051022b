// The page pool: budget, free lists, reference counts; see kv.h.
#include "runtime/kv.h"

#include <cstring>
#include <memory>
#include <new>

namespace stasis {

NodePool::~NodePool() {
    while (free_ != nullptr) {
        Free *next = free_->next;
        memory_.give_back(free_, node_bytes_);
        free_ = next;
    }
}

void *NodePool::take() {
    {
        std::lock_guard lock(mutex_);
        if (free_ != nullptr) {
            Free *node = free_;
            free_ = node->next;
            return node;
        }
    }
    return memory_.take(node_bytes_);
}

void NodePool::give_back(void *node) {
    std::lock_guard lock(mutex_);
    free_ = new (node) Free{free_};
}

PageRef::PageRef(const PageRef &other) : page_(other.page_) {
    if (page_ != nullptr) {
        page_->references.fetch_add(1, std::memory_order_relaxed);
    }
}

PageRef::~PageRef() {
    if (page_ != nullptr && page_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        page_->pool->give_back(page_);
    }
}

PagePool::PagePool(const Memory &memory, uint64_t budget_bytes, std::vector<PageShape> shapes)
    : memory_(memory), budget_bytes_(budget_bytes), shapes_(std::move(shapes)),
      free_(shapes_.size(), nullptr) {}

PagePool::~PagePool() {
    for (KvPage *list : free_) {
        while (list != nullptr) {
            KvPage *next = list->next_free;
            memory_.give_back(list->data, shapes_[list->group].bytes());
            delete list;
            list = next;
        }
    }
}

// Books one page's bytes as used, dropping cached pages of other groups if the budget asks for it.
// Called with the lock held and the group's own free list empty.
void PagePool::account(uint32_t group) {
    const uint64_t bytes = shapes_[group].bytes();
    for (uint32_t other = 0; other < free_.size(); ++other) {
        while (used_bytes_ + cached_bytes_ + bytes > budget_bytes_ && free_[other] != nullptr) {
            KvPage *page = free_[other];
            free_[other] = page->next_free;
            cached_bytes_ -= shapes_[other].bytes();
            memory_.give_back(page->data, shapes_[other].bytes());
            delete page;
        }
    }
    if (used_bytes_ + cached_bytes_ + bytes > budget_bytes_) {
        fail(Status::pool_exhausted,
             "KV pool exhausted: %llu of %llu bytes in use, a page needs %llu more",
             static_cast<unsigned long long>(used_bytes_),
             static_cast<unsigned long long>(budget_bytes_),
             static_cast<unsigned long long>(bytes));
    }
    used_bytes_ += bytes;
}

KvPage *PagePool::allocate(uint32_t group) {
    const size_t bytes = shapes_[group].bytes();
    auto page = std::make_unique<KvPage>();
    page->data = static_cast<uint16_t *>(memory_.take(bytes));
    page->group = group;
    page->pool = this;
    return page.release();
}

PageRef PagePool::take(uint32_t group) {
    PageRef page = take_unset(group);
    std::memset(page.data(), 0, shapes_[group].bytes()); // slots not yet written: never old (C9)
    return page;
}

PageRef PagePool::take_unset(uint32_t group) {
    const uint64_t bytes = shapes_[group].bytes();
    KvPage *page = nullptr;
    {
        std::lock_guard lock(mutex_);
        if (free_[group] != nullptr) {
            page = free_[group];
            free_[group] = page->next_free;
            cached_bytes_ -= bytes;
            used_bytes_ += bytes;
        } else {
            account(group);
        }
    }
    if (page == nullptr) {
        try {
            page = allocate(group);
        } catch (...) {
            std::lock_guard lock(mutex_);
            used_bytes_ -= bytes;
            throw;
        }
    }
    page->references.store(1, std::memory_order_relaxed);
    return PageRef(page);
}

void PagePool::give_back(KvPage *page) noexcept {
    std::lock_guard lock(mutex_);
    const uint64_t bytes = shapes_[page->group].bytes();
    page->next_free = free_[page->group];
    free_[page->group] = page;
    used_bytes_ -= bytes;
    cached_bytes_ += bytes;
}

uint64_t PagePool::used_bytes() const {
    std::lock_guard lock(mutex_);
    return used_bytes_;
}

uint64_t PagePool::cached_bytes() const {
    std::lock_guard lock(mutex_);
    return cached_bytes_;
}

} // namespace stasis
