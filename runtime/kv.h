// KV pages: the pool they come from and the table that names them. A page holds the keys and values
// of kPagePositions positions for all layers of a group, in the order of format/state.h (Page).
// Tables are immutable trees shared between forks (tree.h); pages are copied when written while
// shared. Knows neither tokens nor weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "format/digest.h"
#include "format/state.h"
#include "runtime/kernels/table.h"
#include "runtime/memory.h"
#include "runtime/tree.h"

namespace stasis {

class PagePool;

// One page's memory, reference-counted across tables. Data follows the header.
struct KvPage {
    std::atomic<uint32_t> references{1};
    uint32_t group = 0;
    PagePool *pool = nullptr;
    KvPage *next_free = nullptr;
    uint16_t *data = nullptr;
};

// Counted pointer to a page.
class PageRef {
  public:
    PageRef() = default;
    explicit PageRef(KvPage *page) : page_(page) {} // takes over one reference
    PageRef(const PageRef &other);
    PageRef(PageRef &&other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
    PageRef &operator=(PageRef other) noexcept {
        std::swap(page_, other.page_);
        return *this;
    }
    ~PageRef();
    explicit operator bool() const { return page_ != nullptr; }
    uint16_t *data() const { return page_->data; }
    bool unique() const { return page_->references.load(std::memory_order_acquire) == 1; }

  private:
    KvPage *page_ = nullptr;
};

// Geometry of a group's pages.
struct PageShape {
    size_t layers = 0; // of the group
    size_t kv_heads = 0;
    size_t head_dim = 0;

    size_t head_elements() const { return kernels::kPagePositions * head_dim; }
    size_t rows() const { return layers * 2 * kv_heads; } // [layer][key, value][kv_head]
    size_t elements() const { return rows() * head_elements(); }
    size_t bytes() const { return elements() * sizeof(uint16_t); }
    // Offset of a head's first slot, in elements; `value` 0: keys, 1: values.
    size_t offset(size_t layer, size_t value, size_t head) const {
        return ((layer * 2 + value) * kv_heads + head) * head_elements();
    }
};

// Pages of a model's sessions under one byte budget. Freed pages are kept for reuse.
class PagePool {
  public:
    PagePool(const Memory &memory, uint64_t budget_bytes, std::vector<PageShape> shapes);
    ~PagePool();
    PagePool(const PagePool &) = delete;
    PagePool &operator=(const PagePool &) = delete;

    // A zeroed page of a group. Throws Error(pool_exhausted), Error(no_memory).
    PageRef take(uint32_t group);
    // The same with any contents, for a caller who writes all of it.
    PageRef take_unset(uint32_t group);
    const PageShape &shape(uint32_t group) const { return shapes_[group]; }
    size_t groups() const { return shapes_.size(); }
    uint64_t budget_bytes() const { return budget_bytes_; }
    uint64_t used_bytes() const;
    uint64_t cached_bytes() const;

  private:
    friend class PageRef;
    void account(uint32_t group);
    KvPage *allocate(uint32_t group);
    void give_back(KvPage *page) noexcept;

    const Memory &memory_;
    const uint64_t budget_bytes_;
    const std::vector<PageShape> shapes_;
    mutable std::mutex mutex_;
    std::vector<KvPage *> free_; // [group] list heads
    uint64_t used_bytes_ = 0, cached_bytes_ = 0;
};

// An entry of a group's page table. The digest of a full page is there at once, and outlives the
// page; that of the last page is computed when it is asked for.
struct PageEntry {
    PageRef page = {}; // empty: released
    Digest digest = {};
    uint32_t digested = 0; // first slots that the digest covers; 0: none
    // The same as of the last export or restore: what a file knows the page by.
    Digest exported = {};
    uint32_t exported_slots = 0;

    bool knows_beyond(uint32_t slots) const { return digested > slots || exported_slots > slots; }
    void forget_beyond(uint32_t slots) {
        digested = digested > slots ? 0 : digested;
        exported_slots = exported_slots > slots ? 0 : exported_slots;
    }
};

using PageTable = Tree<PageEntry>;
using TokenLog = Tree<TokenEntry>;

} // namespace stasis
