// The pool of KV pages. A page holds the keys and values of kPagePositions positions for all layers
// of a group, in the order of format/state/state.h (Page). Page tables are immutable trees shared
// between forks (tree.h); a shared page is copied before it is written. Full pages can be found by
// their tokens (prefixes.h), and stay cached for a while after their last user. Their memory is
// accessed through page_memory.h. Knows nothing of weights.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "format/state/digest.h"
#include "format/state/state.h"
#include "runtime/kv/page.h"
#include "runtime/kv/page_memory.h"
#include "runtime/kv/prefixes.h"
#include "runtime/kv/tree.h"

namespace stasis {

class PagePool;

// One page's memory, reference-counted across tables.
struct KvPage {
    std::atomic<uint32_t> references{1};
    uint32_t group = 0;
    PagePool *pool = nullptr;
    KvPage *next_free = nullptr;
    PageAddress address = PageAddress::null;
    Prefix *prefix = nullptr; // its prefix cache entry; changes only while one or nobody holds it
    // Slots that hold no position may have any contents: they could not be cleared, and must be
    // cleared before the page is written. Changes only while one table holds the page.
    bool unclean = false;
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
    PageAddress address() const { return page_ ? page_->address : PageAddress::null; }
    bool unclean() const { return page_->unclean; }
    bool unique() const { return page_->references.load(std::memory_order_acquire) == 1; }
    bool known() const { return page_->prefix != nullptr; }
    // Reports whether no other table holds the page, or can come to hold it.
    bool writable() const { return !known() && unique(); }

  private:
    friend class PagePool;
    KvPage *page_ = nullptr;
};

// Geometry of a group's pages.
struct PageShape {
    size_t layers = 0; // of the group
    size_t kv_heads = 0;
    size_t head_dim = 0;

    size_t head_elements() const { return kPage * head_dim; }
    size_t rows() const { return layers * 2 * kv_heads; } // [layer][key, value][kv_head]
    size_t elements() const { return rows() * head_elements(); }
    size_t bytes() const { return elements() * sizeof(uint16_t); }
    // Offset of a head's first slot, in elements; `value` 0: keys, 1: values.
    size_t offset(size_t layer, size_t value, size_t head) const {
        return ((layer * 2 + value) * kv_heads + head) * head_elements();
    }
};

// An entry of a group's page table. The digest of a full page is computed when the page becomes
// full, and outlives the page; that of the last page is computed on demand.
struct PageEntry {
    PageRef page = {}; // empty: released
    Digest digest = {};
    uint32_t digested = 0; // first slots that the digest covers; 0: none
    // Digest and slots at the last export or restore, by which a file names the page.
    Digest exported = {};
    uint32_t exported_slots = 0;

    bool knows_beyond(uint32_t slots) const { return digested > slots || exported_slots > slots; }
    void forget_beyond(uint32_t slots) {
        digested = digested > slots ? 0 : digested;
        exported_slots = exported_slots > slots ? 0 : exported_slots;
    }
};

// Counted pointer to an entry of the prefix cache: the last full page of a session, or none.
class PrefixRef {
  public:
    PrefixRef() = default;
    PrefixRef(PagePool *pool, Prefix *prefix) : pool_(pool), prefix_(prefix) {} // takes over a use
    PrefixRef(const PrefixRef &other);
    PrefixRef(PrefixRef &&other) noexcept
        : pool_(other.pool_), prefix_(std::exchange(other.prefix_, nullptr)) {}
    PrefixRef &operator=(PrefixRef other) noexcept {
        std::swap(pool_, other.pool_);
        std::swap(prefix_, other.prefix_);
        return *this;
    }
    ~PrefixRef();
    const Prefix *get() const { return prefix_; }
    // Returns the entry of a log that is cut to `pages` full pages.
    PrefixRef cut(uint64_t pages) const;

  private:
    friend class PagePool;
    PagePool *pool_ = nullptr;
    Prefix *prefix_ = nullptr;
};

// The part of a path of tokens that the prefix cache holds.
struct KnownPath {
    std::vector<const Prefix *> prefixes; // kept alive by `end`
    std::vector<PageRef> pages;           // [page][group]; empty: not needed
    std::vector<uint16_t> hidden;         // final hidden state of the last position; empty: none
    std::vector<StateRef> states;         // [page] of recurrent layers after it; empty: not held
    PrefixRef end;
};

// Returns the first page of a group, counted from the path's begin, that is needed if `pages` pages
// of the path are reused.
using FirstNeeded = std::function<uint64_t(size_t group, uint64_t pages)>;

// Pages of a model's sessions under one byte budget. Freed pages are kept for reuse: known pages
// with their contents, the others as memory, which is reclaimed first.
class PagePool {
  public:
    // Without a budget, at most this many bytes of free pages are kept with their contents.
    static constexpr uint64_t kIdleBytesMax = 256U << 20;

    PagePool(const PageMemory &memory, uint64_t budget_bytes, std::vector<PageShape> shapes);
    ~PagePool();
    PagePool(const PagePool &) = delete;
    PagePool &operator=(const PagePool &) = delete;

    // Returns a zeroed page of a group. Throws Error(pool_exhausted), Error(no_memory),
    // Error(device).
    PageRef take(uint32_t group);
    // The same with undefined contents, for a caller that writes all of it.
    PageRef take_unset(uint32_t group);
    // The same with the contents of another page, for a caller that writes to it.
    PageRef copy(const PageRef &page);

    // Returns the numbers of a page in host memory; null if it is in device memory, where
    // page_staging.h copies them. The two functions below then throw Error(device).
    const uint16_t *numbers(const PageRef &page) const;
    // Reports whether the first `slots` slots of two pages of a group hold the same bits.
    bool same(const PageRef &a, const PageRef &b, size_t slots) const;
    // Zeroes the slots from `slot` on of a page that one caller holds. If it throws, the page is
    // marked unclean.
    void clear_from(const PageRef &page, size_t slot) const;

    const PageShape &shape(uint32_t group) const { return shapes_[group]; }
    const PageShape &shape_of(const PageRef &page) const { return shapes_[page.page_->group]; }
    const PageMemory &memory() const { return memory_; }
    size_t groups() const { return shapes_.size(); }
    uint64_t budget_bytes() const { return budget_bytes_; }
    uint64_t used_bytes() const;
    // Returns the bytes that pages can still take if cached ones are reclaimed; UINT64_MAX: no
    // limit.
    uint64_t room_bytes() const;
    uint64_t cached_bytes() const; // of free pages, known ones included
    uint64_t idle_bytes() const;   // of free known pages
    // Reclaims memory of free pages until it adds up to `bytes`, known pages last and the oldest of
    // them first. Returns false if there is not enough.
    bool make_room(uint64_t bytes) noexcept;

    // Returns the longest part of a path after `from` that is known and computed, and holds its
    // needed pages. With `recurrent` it ends where a state is held.
    KnownPath match(const PrefixRef &from, const PrefixRealm &realm,
                    std::span<const uint32_t> tokens, const FirstNeeded &first_needed,
                    bool recurrent);
    // Makes a full page known. `pages` [group] are the caller's pages, in table entries of its own
    // with digests. If the same page is known already, the known pages replace them. Throws
    // Error(diverged) if a computed page (`stored` false) differs from the known one. Keeps `state`
    // with a computed entry that has none.
    PrefixRef intern(const PrefixRef &parent, const PrefixRealm &realm, bool stored,
                     PageTokens tokens, std::span<PageEntry *const> pages,
                     std::span<const uint16_t> hidden, const StateRef &state);
    // Drops the state of the prefix cache that was not used for longest; one that only the cache
    // holds, unless `shared`. Returns false if there is none.
    bool drop_oldest_state(bool shared) noexcept;
    // Adds pages [group] that the caller has obtained since, for groups that have none, and
    // `state`, if it is one, to a computed entry that has none.
    void offer(const Prefix *prefix, std::span<PageEntry *const> pages,
               const StateRef &state) noexcept;
    // Makes a page unknown, so that it can be written. Returns false if others hold it.
    bool withdraw(PageRef &page) noexcept;

  private:
    friend class PageRef;
    friend class PrefixRef;
    // The lock on mutex_, held: a function that takes one needs it, every other one locks itself.
    using Lock = std::lock_guard<std::mutex>;

    void let_go(KvPage *page) noexcept;
    KvPage *allocate(uint32_t group);
    KvPage *book(uint32_t group, const Lock &lock);
    bool drop_free_memory(uint64_t bytes, const Lock &lock) noexcept;
    void drop_free_page(uint32_t group, const Lock &lock) noexcept;
    void forget_oldest(const Lock &lock) noexcept;
    void to_free_list(KvPage *page, const Lock &lock) noexcept;
    void hold(KvPage *page, const Lock &lock) noexcept;
    size_t usable(std::span<Prefix *const> path, const FirstNeeded &first_needed, bool recurrent,
                  const Lock &lock) const;

    const PageMemory memory_;
    const uint64_t budget_bytes_;
    const std::vector<PageShape> shapes_;
    mutable std::mutex mutex_;
    std::vector<KvPage *> free_;                                // [group] list heads
    uint64_t used_bytes_ = 0, free_bytes_ = 0, idle_bytes_ = 0; // of pages held, free, idle
    Prefixes prefixes_;
};

using PageTable = Tree<PageEntry>;
using TokenLog = Tree<TokenEntry>;

} // namespace stasis
