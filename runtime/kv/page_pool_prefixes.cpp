// The pool's prefix cache (prefixes.h): finds pages, makes them known, reclaims idle ones. A
// reference dropped under the lock is destroyed after the lock is released, because a page's last
// reference takes the lock itself.
#include <algorithm>
#include <mutex>

#include "runtime/kv/page_pool.h"

namespace stasis {

PrefixRef::PrefixRef(const PrefixRef &other) : pool_(other.pool_), prefix_(other.prefix_) {
    if (prefix_ != nullptr) {
        const std::lock_guard lock(pool_->mutex_);
        ++prefix_->uses;
    }
}

PrefixRef::~PrefixRef() {
    if (prefix_ != nullptr) {
        const std::lock_guard lock(pool_->mutex_);
        pool_->prefixes_.let_go(prefix_);
    }
}

PrefixRef PrefixRef::cut(uint64_t pages) const {
    Prefix *prefix = prefix_; // its ancestors live as long as it does, and do not change
    while (prefix != nullptr && prefix->index >= pages) {
        prefix = prefix->parent;
    }
    if (prefix == nullptr) {
        return {};
    }
    const std::lock_guard lock(pool_->mutex_);
    ++prefix->uses;
    return {pool_, prefix};
}

// Adds a holder to a known page.
void PagePool::hold(KvPage *page, const Lock &) noexcept {
    if (page->references.fetch_add(1, std::memory_order_acq_rel) == 0) {
        const uint64_t bytes = shapes_[page->group].bytes();
        idle_bytes_ -= bytes;
        used_bytes_ += bytes;
        prefixes_.unpark(page->prefix);
    }
}

// Gives up the contents that were idle for longest; their memory becomes free.
void PagePool::forget_oldest(const Lock &lock) noexcept {
    Prefix *prefix = prefixes_.oldest();
    ++prefix->uses; // keeps the entry until the loop is done
    prefixes_.take_state(prefix);
    for (KvPage *&page : prefix->pages) {
        if (page != nullptr && page->references.load(std::memory_order_relaxed) == 0) {
            prefixes_.unpark(prefix);
            idle_bytes_ -= shapes_[page->group].bytes();
            to_free_list(page, lock);
            page = nullptr;
            --prefix->uses;
        }
    }
    prefixes_.let_go(prefix);
}

// Returns how many pages of a known path can be reused: the longest beginning for which every group
// has all the pages that it needs, and after which the state is held if layers are recurrent. Pages
// may be missing because a window released them or they were reclaimed.
size_t PagePool::usable(std::span<Prefix *const> path, const FirstNeeded &first_needed,
                        bool recurrent, const Lock &) const {
    std::vector<std::vector<uint64_t>> gaps(shapes_.size()); // [group][page] after the last gap
    for (size_t group = 0; group < shapes_.size(); ++group) {
        uint64_t behind = 0;
        for (size_t page = 0; page < path.size(); ++page) {
            behind = path[page]->pages[group] == nullptr ? page + 1 : behind;
            gaps[group].push_back(behind);
        }
    }
    for (size_t count = path.size(); count > 0; --count) {
        bool whole = !recurrent || path[count - 1]->state;
        for (size_t group = 0; group < shapes_.size(); ++group) {
            whole &= gaps[group][count - 1] <= first_needed(group, count);
        }
        if (whole) {
            return count;
        }
    }
    return 0;
}

KnownPath PagePool::match(const PrefixRef &from, const PrefixRealm &realm,
                          std::span<const uint32_t> tokens, const FirstNeeded &first_needed,
                          bool recurrent) {
    std::vector<Prefix *> path;
    path.reserve(tokens.size() / kPage);
    KnownPath known;
    const Lock lock(mutex_);
    for (Prefix *at = from.prefix_; path.size() < tokens.size() / kPage; path.push_back(at)) {
        at = prefixes_.find(at, realm, tokens.subspan(path.size() * kPage).first<kPage>(), {});
        if (at == nullptr) {
            break;
        }
    }
    path.resize(usable(path, first_needed, recurrent, lock));
    if (path.empty()) {
        return known;
    }
    known.prefixes.assign(path.begin(), path.end());
    known.pages.resize(path.size() * groups());
    known.states.resize(recurrent ? path.size() : 0);
    known.hidden = path.back()->hidden; // nothing below can fail
    for (size_t group = 0; group < groups(); ++group) {
        for (size_t page = first_needed(group, path.size()); page < path.size(); ++page) {
            hold(path[page]->pages[group], lock);
            known.pages[page * groups() + group] = PageRef(path[page]->pages[group]);
        }
    }
    for (size_t page = 0; page < known.states.size(); ++page) {
        known.states[page] = path[page]->state;
        prefixes_.touch_state(path[page]);
    }
    // From the end, so that the end is reclaimed first.
    for (size_t page = path.size(); page-- > 0;) {
        prefixes_.touch(path[page]);
    }
    ++path.back()->uses;
    known.end = PrefixRef(this, path.back());
    return known;
}

PrefixRef PagePool::intern(const PrefixRef &parent, const PrefixRealm &realm, bool stored,
                           PageTokens tokens, std::span<PageEntry *const> pages,
                           std::span<const uint16_t> hidden, const StateRef &state) {
    // The entry is allocated before the lock is taken.
    auto fresh = std::make_unique<Prefix>();
    fresh->parent = parent.prefix_;
    fresh->realm = realm;
    fresh->stored = stored;
    std::copy(tokens.begin(), tokens.end(), fresh->tokens.begin());
    fresh->pages.resize(pages.size());
    fresh->hidden.assign(hidden.begin(), hidden.end());
    for (const PageEntry *page : pages) {
        fresh->digests.push_back(page->digest);
    }
    std::vector<PageRef> replaced(pages.size()); // destroyed after the lock is released
    const Lock lock(mutex_);

    // Finds the entry, or inserts the new one.
    Prefix *entry = prefixes_.find(parent.prefix_, realm, tokens,
                                   stored ? fresh->digests : std::span<const Digest>());
    if (entry != nullptr && entry->digests != fresh->digests) { // never of one found by them
        fail(Status::diverged,
             "positions %llu to %llu gave other keys or values than the same tokens gave before",
             static_cast<Number>(entry->index * kPage),
             static_cast<Number>(entry->index * kPage + kPage - 1));
    }
    if (entry == nullptr) {
        entry = prefixes_.insert(std::move(fresh));
    } else if (entry->hidden.empty() && !entry->stored && !stored) {
        std::swap(entry->hidden, fresh->hidden);
    }
    if (!entry->stored && !stored && state && !entry->state) {
        prefixes_.put_state(entry, state);
    }
    // Fills the entry's gaps from the caller's pages, and replaces the others by the known ones.
    ++entry->uses;
    for (size_t group = 0; group < pages.size(); ++group) {
        PageRef &own = pages[group]->page;
        KvPage *&known = entry->pages[group];
        if (known != nullptr && known != own.page_) {
            hold(known, lock);
            replaced[group] = std::exchange(own, PageRef(known));
        } else if (known == nullptr && own && !own.known()) {
            known = own.page_;
            known->prefix = entry;
            ++entry->uses;
        }
    }
    prefixes_.touch(entry);
    return {this, entry};
}

bool PagePool::drop_oldest_state(bool shared) noexcept {
    StateRef dropped; // given back after the lock is released
    const Lock lock(mutex_);
    Prefix *oldest = prefixes_.oldest_state(shared);
    if (oldest == nullptr) {
        return false;
    }
    dropped = prefixes_.take_state(oldest);
    return true;
}

void PagePool::offer(const Prefix *prefix, std::span<PageEntry *const> pages,
                     const StateRef &state) noexcept {
    const Lock lock(mutex_);
    auto *entry = const_cast<Prefix *>(prefix); // owned by the pool
    if (!entry->stored && state && !entry->state) {
        prefixes_.put_state(entry, state);
    }
    for (size_t group = 0; group < pages.size(); ++group) {
        PageRef &own = pages[group]->page;
        if (entry->pages[group] == nullptr && own && !own.known()) {
            entry->pages[group] = own.page_;
            own.page_->prefix = entry;
            ++entry->uses;
        }
    }
}

bool PagePool::withdraw(PageRef &page) noexcept {
    const Lock lock(mutex_);
    if (!page.unique()) {
        return false;
    }
    if (Prefix *entry = std::exchange(page.page_->prefix, nullptr)) {
        entry->pages[page.page_->group] = nullptr;
        prefixes_.let_go(entry);
    }
    return true;
}

} // namespace stasis
