// KV pages: the pool they come from and the table that names them. A page holds the keys and values
// of kPagePositions positions for all layers of a group, in the order of format/state/state.h
// (Page). Tables are immutable trees shared between forks (tree.h); pages are copied when written
// while shared. Full pages are known by their tokens (prefixes.h), those that nobody holds any more
// for a while longer. Where their bytes lie is page_memory.h's. Knows nothing of weights.
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
    Prefix *prefix = nullptr; // that it is known by; changes only while one or nobody holds it
    // Slots that hold no position may hold anything: they could not be cleared, and must be before
    // the page is written. Changes only while one holds it.
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
    // Nobody else holds it, or can come to hold it.
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

// Counted pointer to an entry of the index: the last full page of a session, or none.
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
    // The same for a log that is cut to so many full pages.
    PrefixRef cut(uint64_t pages) const;

  private:
    friend class PagePool;
    PagePool *pool_ = nullptr;
    Prefix *prefix_ = nullptr;
};

// What the index knows of a path of tokens.
struct KnownPath {
    std::vector<const Prefix *> prefixes; // kept alive by `end`
    std::vector<PageRef> pages;           // [page][group]; empty: not needed
    std::vector<uint16_t> hidden;         // of the last position; empty: not known
    PrefixRef end;
};

// The first page of a group, counted from the path's begin, that must be there if the path is
// followed for so many pages.
using FirstNeeded = std::function<uint64_t(size_t group, uint64_t pages)>;

// Pages of a model's sessions under one byte budget. Freed pages are kept for reuse: those that are
// known by their tokens with their contents, the rest, which goes first, as memory.
class PagePool {
  public:
    // Without a budget no more than this is kept with its contents.
    static constexpr uint64_t kIdleBytesMax = 256U << 20;

    PagePool(const PageMemory &memory, uint64_t budget_bytes, std::vector<PageShape> shapes);
    ~PagePool();
    PagePool(const PagePool &) = delete;
    PagePool &operator=(const PagePool &) = delete;

    // A zeroed page of a group. Throws Error(pool_exhausted), Error(no_memory), Error(device).
    PageRef take(uint32_t group);
    // The same with any contents, for a caller who writes all of it.
    PageRef take_unset(uint32_t group);
    // The same with what another page holds, for a caller who writes to it.
    PageRef copy(const PageRef &page);

    // The numbers of a page, where they lie; null: not on the host, and page_staging.h brings them.
    // The functions that follow throw Error(device) there.
    const uint16_t *numbers(const PageRef &page) const;
    // Whether the first slots of two pages of a group hold the same bits.
    bool same(const PageRef &a, const PageRef &b, size_t slots) const;
    // Zeroes the slots from `slot` on of a page that one caller holds. Should it throw, the page is
    // unclean from then on.
    void clear_from(const PageRef &page, size_t slot) const;

    const PageShape &shape(uint32_t group) const { return shapes_[group]; }
    const PageShape &shape_of(const PageRef &page) const { return shapes_[page.page_->group]; }
    const PageMemory &memory() const { return memory_; }
    size_t groups() const { return shapes_.size(); }
    uint64_t budget_bytes() const { return budget_bytes_; }
    uint64_t used_bytes() const;
    // What pages can still take, cached ones given way; UINT64_MAX: no limit.
    uint64_t room_bytes() const;
    uint64_t cached_bytes() const; // of free pages, those of known contents included
    uint64_t idle_bytes() const;   // of free pages of known contents
    // Gives back memory of free pages until it comes to so many bytes, those of known contents last
    // and the oldest of them first. False: there is none.
    bool make_room(uint64_t bytes) noexcept;

    // As much of a path behind `from` as is known and computed, its needed pages held.
    KnownPath match(const PrefixRef &from, const PrefixRealm &realm,
                    std::span<const uint32_t> tokens, const FirstNeeded &first_needed);
    // Makes a full page known: `pages` [group] are what the caller has of it, on table entries of
    // its own with digests. Where the same is known, known pages take their place. What is computed
    // (`stored` false) and differs from what is known throws Error(diverged).
    PrefixRef intern(const PrefixRef &parent, const PrefixRealm &realm, bool stored,
                     PageTokens tokens, std::span<PageEntry *const> pages,
                     std::span<const uint16_t> hidden);
    // Adds pages [group] that the caller has come to have since: those nobody else gave.
    void offer(const Prefix *prefix, std::span<PageEntry *const> pages) noexcept;
    // Makes a page unknown, so that it can be written; false: others hold it.
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
    size_t usable(std::span<Prefix *const> path, const FirstNeeded &first_needed,
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
