// Shares full pages between timelines by their tokens: known pages are taken instead of computed or
// read, and computed pages become known. Only timelines of one domain share; prefixes.h defines
// when two pages are the same.
#include <algorithm>
#include <array>
#include <cassert>

#include "runtime/kernels/visibility.h"
#include "runtime/timeline/append.h"

namespace stasis {

// Returns the realm of a page that ends at a position. The positions evicted before it, and the
// factors of RoPE, determine its bits too.
PrefixRealm Timeline::realm(uint64_t end) const {
    return {domain, evictions.digest_before(end), long_rope};
}

// Takes the known full pages at the beginning of the append. A partial page of the timeline is
// replaced as well: the same tokens give the same bits. The log advances over them.
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

    // A group needs the pages that the timeline keeps in the end, and those that the remaining
    // positions see.
    const auto first_needed = [&](size_t group, uint64_t count) {
        const uint32_t window = own.network->groups[group].window;
        const uint64_t seen = kernels::first_visible((first + count) * kPage, window);
        return std::min(count, std::max(first, std::min(own.keep_from(window, end), seen) / kPage) -
                                   first);
    };
    KnownPath path = own.network->pool->match(own.known, own.realm(end), tokens, first_needed,
                                              own.states.used());
    if (path.prefixes.empty()) {
        return;
    }

    // The pages enter the tables; abort needs the partial page that the first may replace.
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

    // The log advances over the pages' entries.
    reused = done = (first + path.prefixes.size()) * kPage - start;
    for (const TokenEntry &entry : entries.first(done)) {
        own.log.push_back(entry);
    }
    for (size_t page = 0; page < path.states.size(); ++page) {
        const uint64_t after = (first + page + 1) * kPage;
        if (path.states[page] && after > own.states.nearest(UINT64_MAX)) {
            own.states.add(after, std::move(path.states[page]), start);
        }
    }
    own.known = std::move(path.end);
    hidden = std::move(path.hidden);
    own.tell_pages(PageOrigin::known);
}

// Makes the pages that became full between two positions known; pages that depend on an untrusted
// file are marked as stored. `hidden_rows` [end - begin][hidden] are the positions' final hidden
// states. The pages' table entries must be exclusive to this timeline.
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
            assert(!pages[group].shared(page));
            full[group] = &pages[group].mutate(page);
        }
        // Pages below `unproven` depend on an untrusted file.
        const uint64_t row = page * kPage + kPage - 1 - begin, after = (page + 1) * kPage;
        const StateRef state = keeps_checkpoint(after, after) ? states.at(after) : StateRef();
        known = network->pool->intern(known, realm(after), page * kPage < unproven, tokens, full,
                                      {hidden_rows + row * width, width}, state);
    }
    if (!full.empty()) {
        tell_pages(PageOrigin::known);
    }
}

// Finds the full pages of a stored log among the known ones, or adds entries without pages for
// them; they count as computed if the file is trusted. Returns the pages found, [page][group]. The
// digests found equal the file's, so the bits do too.
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
        // The file's digests select the entry; no page is offered yet.
        std::vector<PageEntry> entries(groups);
        std::vector<PageEntry *> each;
        for (size_t group = 0; group < groups; ++group) {
            entries[group].digest = state.pages[group][page].digest;
            each.push_back(&entries[group]);
        }
        known =
            network->pool->intern(known, realm((page + 1) * kPage), !trusted, tokens, each, {}, {});
        for (size_t group = 0; group < groups; ++group) {
            found[page * groups + group] = std::move(entries[group].page);
        }
    }
    return found;
}

// Offers the prefix cache the full pages that were read and have the file's digests. Nothing proves
// the recurrent states beside them, so those of a trusted file alone are offered.
void Timeline::offer_stored(bool trusted) {
    for (const Prefix *prefix = known.get(); prefix != nullptr; prefix = prefix->parent) {
        std::vector<PageEntry *> each;
        for (PageTable &table : pages) {
            each.push_back(&table.mutate(prefix->index));
        }
        const uint64_t after = (prefix->index + 1) * kPage;
        const bool offered = trusted && states.used() && keeps_checkpoint(after, after);
        network->pool->offer(prefix, each, offered ? states.at(after) : StateRef());
    }
}

} // namespace stasis
