// A timeline's pages as it grows: takes, copies, addresses, digests, releases and undoes them. See
// timeline.h, and append.cpp for the order.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "runtime/compute/pass.h"
#include "runtime/kernels/visibility.h"
#include "runtime/kv/page_staging.h"
#include "runtime/timeline/timeline.h"

namespace stasis {

// Returns the first position that layers of a window must keep when the next token takes
// `position`: the window of the last token, which a rewind to `position` computes again, and the
// retained positions before it.
uint64_t Timeline::keep_from(uint32_t window, uint64_t position) const {
    if (window == 0 || position <= window + window_retain) {
        return 0;
    }
    return position - window - window_retain;
}

// Updates the model's count of KV bytes held.
void Timeline::count_held() noexcept {
    uint64_t bytes = 0;
    for (size_t group = 0; group < pages.size(); ++group) {
        const uint64_t end = pages[group].size();
        const uint64_t count = end - std::min(end, first_page[group]);
        const uint64_t evicted = evictions.whole_blocks(first_page[group], end);
        bytes += (count - evicted) * network->page_shapes[group].bytes();
    }
    held.set(bytes);
}

// Returns the least number of bytes of pages to be taken until position `end`: new pages, and
// copies of shared pages that are written to.
uint64_t Timeline::bytes_missing(uint64_t end) const {
    const uint64_t begin = log.size(), last = begin / kPage;
    uint64_t bytes = 0;
    for (size_t group = 0; group < pages.size(); ++group) {
        const PageTable &table = pages[group];
        const uint64_t kept = keep_from(network->groups[group].window, end) / kPage;
        const uint64_t needed = (end + kPage - 1) / kPage;
        uint64_t missing = needed - std::min(needed, std::max<uint64_t>(table.size(), kept));
        if (begin % kPage != 0 && begin != end && table[last].page &&
            (table.shared(last) || !table[last].page.unique())) {
            ++missing;
        }
        bytes += missing * network->page_shapes[group].bytes();
    }
    return bytes;
}

// Replaces a page that others hold, or may come to hold, by one that this timeline holds alone.
void Timeline::copy_page(PageRef &page) {
    try {
        page = network->pool->copy(page);
    } catch (const Error &error) { // without memory for a copy: make the page this timeline's own
        if (error.status() != Status::pool_exhausted || !network->pool->withdraw(page)) {
            throw;
        }
    }
}

// Takes new pages and copies shared ones, so that every page that holds a position of [begin, end)
// may be written. Clears pages that clear_beyond could not clear.
void Timeline::make_writable(uint64_t begin, uint64_t end) {
    assert(begin < end);
    for (uint32_t group = 0; group < pages.size(); ++group) {
        PageTable &table = pages[group];
        for (uint64_t index = begin / kPage; index <= (end - 1) / kPage; ++index) {
            if (index == table.size()) {
                table.push_back({network->pool->take(group), {}, 0});
                continue;
            }
            PageEntry &entry = table.mutate(index);
            if (!entry.page.writable()) {
                copy_page(entry.page);
            }
            if (entry.page.unclean()) { // every slot from `begin` on will be rewritten
                network->pool->clear_from(entry.page, begin % kPage);
            }
        }
    }
}

// Gives the forward pass the addresses of all pages that the sequence's positions may see, in the
// memory of the backend that runs it.
void Timeline::name_pages(Sequence &sequence) const {
    const uint64_t last = (sequence.begin + sequence.rows - 1) / kPage;
    sequence.evicted = evictions.masks();
    sequence.long_rope = long_rope;
    for (size_t group = 0; group < pages.size(); ++group) {
        const uint32_t window = network->groups[group].window;
        Sequence::Pages &named = sequence.pages[group];
        named.first = kernels::first_visible(sequence.begin, window) / kPage;
        for (size_t index = named.first; index <= last; ++index) {
            const PageAddress address = pages[group][index].page.address(); // null: evicted
            named.data.push_back(reinterpret_cast<uint16_t *>(address));
        }
    }
}

// Digests the pages that became full between two positions, all at once.
void Timeline::digest_full_pages(uint64_t begin, uint64_t end) {
    const uint64_t first = begin / kPage, count = end / kPage - first;
    if (count == 0) {
        return;
    }
    // Page digests are independent, so all threads compute them.
    std::vector<PageEntry *> entries;
    std::vector<const PageRef *> full;
    for (PageTable &table : pages) {
        for (uint64_t index = first; index < first + count; ++index) {
            entries.push_back(&table.mutate(index));
            full.push_back(&entries.back()->page);
        }
    }
    for_each_page(*network->pool, *network->threads, full, [&](size_t i, const uint16_t *numbers) {
        const auto group = static_cast<uint32_t>(i / count);
        const PageShape &shape = network->page_shapes[group];
        entries[i]->digest = page_digest(
            {group, first + i % count, numbers, shape.rows(), kPage, kPage, shape.head_dim});
        entries[i]->digested = kPage;
    });
    tell_pages(PageOrigin::computed);
}

// Makes the table entries that release_outrun will empty exclusive to this timeline, so that
// release_outrun cannot fail.
void Timeline::own_outrun(uint64_t position) {
    for (size_t group = 0; group < pages.size(); ++group) {
        const uint64_t keep = keep_from(network->groups[group].window, position) / kPage;
        for (uint64_t index = first_page[group];
             index < std::min<uint64_t>(keep, pages[group].size()); ++index) {
            pages[group].mutate(index);
        }
    }
}

// Releases local layers' pages, from page `from_page` on, that no query from `position` on needs.
// Their table entries must be exclusive to this timeline.
void Timeline::release_outrun(uint64_t position, uint64_t from_page) noexcept {
    for (size_t group = 0; group < pages.size(); ++group) {
        const uint64_t keep = keep_from(network->groups[group].window, position) / kPage;
        for (uint64_t index = std::max(from_page, first_page[group]);
             index < std::min<uint64_t>(keep, pages[group].size()); ++index) {
            if (pages[group][index].page) {
                assert(!pages[group].shared(index));
                pages[group].mutate(index).page = PageRef();
            }
        }
    }
}

// Undoes what was added after `position`. The paths and pages added must be exclusive to this
// timeline, so that this allocates nothing.
void Timeline::roll_back(uint64_t position) noexcept {
    assert(position <= log.size());
    log.truncate(position);
    cut(position);
    clear_beyond(position);
}

// Zeroes the slots after the end of the log, which may hold anything that a call wrote (C9). If
// device memory fails to be cleared, nothing is lost: no digest, file or query reads these slots.
// The page is marked unclean, so that the next writer clears it first, and fails if that fails. A
// copy of an unclean page is unclean too.
void Timeline::clear_beyond(uint64_t position) noexcept {
    if (position % kPage == 0) {
        return;
    }
    for (PageTable &table : pages) {
        const size_t last = position / kPage;
        if (last >= table.size() || !table[last].page || table.shared(last) ||
            !table[last].page.writable()) {
            continue; // not written by this call
        }
        try {
            network->pool->clear_from(table[last].page, position % kPage);
        } catch (...) { // clear_from has marked the page unclean
        }
    }
}

// Cuts the page tables to the pages that hold positions below `position`.
void Timeline::cut(uint64_t position) {
    known = known.cut(position / kPage);
    profile.cut(position);
    states.cut(position);
    for (PageTable &table : pages) {
        table.truncate((position + kPage - 1) / kPage);
        const auto slots = static_cast<uint32_t>(position % kPage);
        const size_t last = position / kPage;
        if (slots != 0 && last < table.size() && table[last].knows_beyond(slots)) {
            table.mutate(last).forget_beyond(slots);
        }
    }
}

const Digest &Timeline::page_digest_of(size_t group, size_t page) {
    PageTable &table = pages[group];
    const auto valid = static_cast<uint32_t>(std::min<uint64_t>(kPage, log.size() - page * kPage));
    if (table[page].digested != valid) {
        const PageShape &shape = network->page_shapes[group];
        PageEntry &entry = table.mutate(page);
        PageStaging staging(*network->pool);
        const uint16_t *numbers = staging.read_now(entry.page);
        entry.digest = page_digest({static_cast<uint32_t>(group), page, numbers, shape.rows(),
                                    kPage, valid, shape.head_dim});
        entry.digested = valid;
    }
    return table[page].digest;
}

void Timeline::copy_kv(uint32_t layer, uint64_t begin, uint64_t end, uint16_t *keys,
                       uint16_t *values) const {
    assert(begin <= end && end <= log.size());
    const LayerPlace place = network->layer_places[layer];
    if (place.group == LayerPlace::kRecurrent) {
        fail(Status::unsupported, "layer %u is recurrent: it has no keys and values", layer);
    }
    const PageShape &shape = network->page_shapes[place.group];
    const size_t size_bytes = shape.head_dim * sizeof(uint16_t);
    const uint16_t *layer_numbers = nullptr; // of the position's page, [key, value][kv_head]
    PageStaging staging(*network->pool);
    for (uint64_t position = begin; position < end; ++position) {
        const PageEntry &entry = pages[place.group][position / kPage];
        if (!entry.page) {
            const bool evicted = evictions.whole(position / kPage);
            fail(Status::not_found, "layer %u has released position %llu (%s%u)", layer,
                 Number{position}, evicted ? "evicted; window of " : "window of ",
                 network->groups[place.group].window);
        }
        // One read gives the keys and values of the layer for a whole page.
        if (position == begin || position % kPage == 0) {
            layer_numbers = staging.read_now(entry.page, shape.offset(place.index, 0, 0),
                                             2 * shape.kv_heads * shape.head_elements());
        }
        for (size_t head = 0; head < shape.kv_heads; ++head) {
            const uint16_t *from =
                layer_numbers + shape.offset(0, 0, head) + (position % kPage) * shape.head_dim;
            const size_t to = ((position - begin) * shape.kv_heads + head) * shape.head_dim;
            std::memcpy(keys + to, from, size_bytes);
            std::memcpy(values + to, from + shape.offset(0, 1, 0), size_bytes);
        }
    }
}

} // namespace stasis
