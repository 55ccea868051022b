// How a session shares full pages with others by their tokens: what is known is taken instead of
// computed or read, what it computes becomes known. Only sessions of one domain share; see
// prefixes.h for what makes two pages the same.
#include <algorithm>
#include <array>

#include "runtime/compute/workspace.h"
#include "runtime/session/session.h"

namespace stasis {

// Of a page that ends at a position: what was evicted before is in its bits.
PrefixRealm Session::realm(uint64_t end) const {
    return {domain_, evictions_.digest_before(end)};
}

// Takes the full pages at the beginning of the growth that are known. A page that the session has
// in part is replaced as well: the same tokens gave it the same bits.
void Session::reuse(Growth &growth) {
    const uint64_t start = growth.start, end = start + growth.entries.size();
    const uint64_t first = start / kPage, last = end / kPage;
    if (!shares_ || first == last) {
        return;
    }
    std::vector<uint32_t> tokens;
    tokens.reserve((last - first) * kPage);
    for (uint64_t position = first * kPage; position < last * kPage; ++position) {
        tokens.push_back(position < start ? log_[position].token
                                          : growth.entries[position - start].token);
    }
    // What the session keeps in the end, and what the positions that remain see.
    const auto first_needed = [&](size_t group, uint64_t pages) {
        const uint32_t window = model_->groups[group].window;
        const uint64_t seen = first_visible((first + pages) * kPage, window);
        return std::min(pages,
                        std::max(first, std::min(keep_from(window, end), seen) / kPage) - first);
    };
    KnownPath path = model_->pool->match(known_, realm(end), tokens, first_needed);
    if (path.prefixes.empty()) {
        return;
    }
    growth.replaced.reserve(start % kPage == 0 ? 0 : pages_.size());
    for (size_t page = 0; page < path.prefixes.size(); ++page) {
        for (size_t group = 0; group < pages_.size(); ++group) {
            PageRef &held = path.pages[page * pages_.size() + group];
            const Digest &digest = path.prefixes[page]->digests[group];
            if (page == 0 && start % kPage != 0) {
                PageEntry &entry = pages_[group].mutate(first);
                growth.replaced.push_back(entry);
                entry.page = std::move(held);
                entry.digest = digest;
                entry.digested = kPage;
            } else {
                pages_[group].push_back({std::move(held), digest, kPage});
            }
        }
    }
    growth.reused = growth.done = (first + path.prefixes.size()) * kPage - start;
    for (const TokenEntry &entry : growth.entries.first(growth.done)) {
        log_.push_back(entry);
    }
    known_ = std::move(path.end);
    growth.hidden = std::move(path.hidden);
    tell_pages(PageOrigin::known);
}

// Makes the pages that became full between two positions known, those that hold something of an
// untrusted file as what such files say; `hidden` [end - begin][hidden] are
// the positions' final hidden states. Their table entries are this session's own.
void Session::make_known(uint64_t begin, uint64_t end, const uint16_t *hidden) {
    if (!shares_) {
        return;
    }
    const size_t width = model_->config.hidden;
    std::array<uint32_t, kPage> tokens{};
    std::vector<PageEntry *> pages(begin / kPage == end / kPage ? 0 : pages_.size());
    for (uint64_t page = begin / kPage; page < end / kPage; ++page) {
        for (uint64_t slot = 0; slot < kPage; ++slot) {
            tokens[slot] = log_[page * kPage + slot].token;
        }
        for (size_t group = 0; group < pages_.size(); ++group) {
            pages[group] = &pages_[group].mutate(page);
        }
        const uint64_t row = page * kPage + kPage - 1 - begin;
        known_ = model_->pool->intern(known_, realm((page + 1) * kPage), page * kPage < unproven_,
                                      tokens, pages, {hidden + row * width, width});
    }
    if (!pages.empty()) {
        tell_pages(PageOrigin::known);
    }
}

// Finds a stored log's full pages among those known, or makes room for them there. Returns those
// that are there, [page][group] of all pages. Their digests are the file's, so their bits are.
std::vector<PageRef> Session::find_stored(const State &state, const Watch &watch) {
    const uint64_t full = state.log.size() / kPage;
    std::vector<PageRef> found((state.log.size() + kPage - 1) / kPage * pages_.size());
    if (!shares_) {
        return found;
    }
    std::array<uint32_t, kPage> tokens{};
    for (uint64_t page = 0; page < full; ++page) {
        watch.step(0, 0);
        for (uint64_t slot = 0; slot < kPage; ++slot) {
            tokens[slot] = state.log[page * kPage + slot].token;
        }
        std::vector<PageEntry> entries(pages_.size());
        std::vector<PageEntry *> pages;
        for (size_t group = 0; group < pages_.size(); ++group) {
            entries[group].digest = state.pages[group][page].digest;
            pages.push_back(&entries[group]);
        }
        known_ =
            model_->pool->intern(known_, realm((page + 1) * kPage), !trusted_, tokens, pages, {});
        for (size_t group = 0; group < pages_.size(); ++group) {
            found[page * pages_.size() + group] = std::move(entries[group].page);
        }
    }
    return found;
}

// Gives the full pages that were read, and found to be what the file's digests say, to those known.
void Session::offer_stored() {
    for (const Prefix *prefix = known_.get(); prefix != nullptr; prefix = prefix->parent) {
        std::vector<PageEntry *> pages;
        for (PageTable &table : pages_) {
            pages.push_back(&table.mutate(prefix->index));
        }
        model_->pool->offer(prefix, pages);
    }
}

} // namespace stasis
