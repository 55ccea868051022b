// How timelines share full pages by their tokens: known pages are taken instead of computed or
// read, and computed ones become known. Only timelines of one domain share; prefixes.h says what
// makes two pages the same.
#include <algorithm>
#include <array>

#include "runtime/kernels/visibility.h"
#include "runtime/timeline/append.h"

namespace stasis {

// For a page that ends at a position: what was evicted before is in its bits.
PrefixRealm Timeline::realm(uint64_t end) const {
    return {domain, evictions.digest_before(end)};
}

// Takes the full pages at the beginning of the append that are known. A partial page of the
// timeline is replaced as well: the same tokens gave it the same bits.
void Append::reuse() {
    Timeline &own = *timeline;
    const uint64_t end = start + entries.size();
    const uint64_t first = start / kPage, last = end / kPage;
    const size_t groups = own.pages.size();
    if (!own.shares || first == last) {
        return;
    }
    std::vector<uint32_t> tokens;
    tokens.reserve((last - first) * kPage);
    for (uint64_t position = first * kPage; position < last * kPage; ++position) {
        tokens.push_back(position < start ? own.log[position].token
                                          : entries[position - start].token);
    }

    // What the timeline keeps in the end, and what the positions that remain see.
    const auto first_needed = [&](size_t group, uint64_t count) {
        const uint32_t window = own.network->groups[group].window;
        const uint64_t seen = kernels::first_visible((first + count) * kPage, window);
        return std::min(count, std::max(first, std::min(own.keep_from(window, end), seen) / kPage) -
                                   first);
    };
    KnownPath path = own.network->pool->match(own.known, own.realm(end), tokens, first_needed);
    if (path.prefixes.empty()) {
        return;
    }

    replaced.reserve(start % kPage == 0 ? 0 : groups);
    for (size_t page = 0; page < path.prefixes.size(); ++page) {
        for (size_t group = 0; group < groups; ++group) {
            PageRef &held = path.pages[page * groups + group];
            const Digest &digest = path.prefixes[page]->digests[group];
            if (page == 0 && start % kPage != 0) {
                PageEntry &entry = own.pages[group].mutate(first);
                replaced.push_back(entry);
                entry.page = std::move(held);
                entry.digest = digest;
                entry.digested = kPage;
            } else {
                own.pages[group].push_back({std::move(held), digest, kPage});
            }
        }
    }
    reused = done = (first + path.prefixes.size()) * kPage - start;
    for (const TokenEntry &entry : entries.first(done)) {
        own.log.push_back(entry);
    }
    own.known = std::move(path.end);
    hidden = std::move(path.hidden);
    own.tell_pages(PageOrigin::known);
}

// Makes the pages that became full between two positions known; those that hold something of an
// untrusted file as what such files say. `hidden_rows` [end - begin][hidden] are the positions'
// final hidden states. Expects that their table entries are this timeline's own.
void Timeline::make_known(uint64_t begin, uint64_t end, const uint16_t *hidden_rows) {
    if (!shares) {
        return;
    }
    const size_t width = network->config.hidden;
    std::array<uint32_t, kPage> tokens{};
    std::vector<PageEntry *> full(begin / kPage == end / kPage ? 0 : pages.size());
    for (uint64_t page = begin / kPage; page < end / kPage; ++page) {
        for (uint64_t slot = 0; slot < kPage; ++slot) {
            tokens[slot] = log[page * kPage + slot].token;
        }
        for (size_t group = 0; group < pages.size(); ++group) {
            full[group] = &pages[group].mutate(page);
        }
        const uint64_t row = page * kPage + kPage - 1 - begin;
        known = network->pool->intern(known, realm((page + 1) * kPage), page * kPage < unproven,
                                      tokens, full, {hidden_rows + row * width, width});
    }
    if (!full.empty()) {
        tell_pages(PageOrigin::known);
    }
}

// Finds the full pages of a stored log among the known ones, or adds empty entries for them, as
// computed ones if the file is trusted. Returns the pages found, [page][group]. Their digests are
// the file's, so their bits are.
std::vector<PageRef> Timeline::find_stored(const State &state, bool trusted, const Watch &watch) {
    const size_t groups = pages.size();
    const uint64_t full = state.log.size() / kPage;
    std::vector<PageRef> found((state.log.size() + kPage - 1) / kPage * groups);
    if (!shares) {
        return found;
    }
    std::array<uint32_t, kPage> tokens{};
    for (uint64_t page = 0; page < full; ++page) {
        watch.step(0, 0);
        for (uint64_t slot = 0; slot < kPage; ++slot) {
            tokens[slot] = state.log[page * kPage + slot].token;
        }
        std::vector<PageEntry> entries(groups);
        std::vector<PageEntry *> each;
        for (size_t group = 0; group < groups; ++group) {
            entries[group].digest = state.pages[group][page].digest;
            each.push_back(&entries[group]);
        }
        known = network->pool->intern(known, realm((page + 1) * kPage), !trusted, tokens, each, {});
        for (size_t group = 0; group < groups; ++group) {
            found[page * groups + group] = std::move(entries[group].page);
        }
    }
    return found;
}

// Gives the prefix cache the full pages that were read, and found to have the file's digests.
void Timeline::offer_stored() {
    for (const Prefix *prefix = known.get(); prefix != nullptr; prefix = prefix->parent) {
        std::vector<PageEntry *> each;
        for (PageTable &table : pages) {
            each.push_back(&table.mutate(prefix->index));
        }
        network->pool->offer(prefix, each);
    }
}

} // namespace stasis
