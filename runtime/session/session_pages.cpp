// A session's pages: whose they are, what is visible, what is digested, released, undone and told.
#include <algorithm>
#include <cstring>

#include "runtime/compute/workspace.h"
#include "runtime/kv/page_staging.h"
#include "runtime/session/session.h"

namespace stasis {

// First position that must stay for layers of a window when the next token takes `position`: the
// window of the last token, which a rewind to here runs again, and what the session retains.
uint64_t Session::keep_from(uint32_t window, uint64_t position) const {
    if (window == 0 || position <= window + window_retain_) {
        return 0;
    }
    return position - window - window_retain_;
}

// Keeps the model's count of KV bytes held up to date.
void Session::account() {
    uint64_t bytes = 0;
    for (size_t group = 0; group < pages_.size(); ++group) {
        const uint64_t pages =
            pages_[group].size() - std::min<uint64_t>(pages_[group].size(), first_page_[group]);
        const uint64_t evicted = evictions_.whole_blocks(first_page_[group], pages_[group].size());
        bytes += (pages - evicted) * model_->pool->shape(static_cast<uint32_t>(group)).bytes();
    }
    model_->held_bytes += bytes - held_bytes_;
    held_bytes_ = bytes;
}

// Bytes of pages that the session lacks, at least, to hold what it must at `end`: those to come,
// and copies of those that it shares and writes to.
uint64_t Session::bytes_missing(uint64_t end) const {
    const uint64_t begin = log_.size(), last = begin / kPage;
    uint64_t bytes = 0;
    for (uint32_t group = 0; group < pages_.size(); ++group) {
        const PageTable &table = pages_[group];
        const uint64_t kept = keep_from(model_->groups[group].window, end) / kPage;
        const uint64_t pages = (end + kPage - 1) / kPage;
        uint64_t missing = pages - std::min(pages, std::max<uint64_t>(table.size(), kept));
        if (begin % kPage != 0 && begin != end && table[last].page &&
            (table.shared(last) || !table[last].page.unique())) {
            ++missing;
        }
        bytes += missing * model_->pool->shape(group).bytes();
    }
    return bytes;
}

// A page that others hold or may come to hold becomes one that this session holds alone.
void Session::copy_page(PageRef &page) {
    try {
        page = model_->pool->copy(page);
    } catch (const Error &error) { // without memory for a copy nobody else will come to hold it
        if (error.status() != Status::pool_exhausted || !model_->pool->withdraw(page)) {
            throw;
        }
    }
}

// Makes every page that holds a position of [begin, end) this session's own, taking new pages and
// copying shared ones. What clear_beyond could not clear is cleared now.
void Session::make_writable(uint64_t begin, uint64_t end) {
    for (uint32_t group = 0; group < pages_.size(); ++group) {
        PageTable &table = pages_[group];
        for (uint64_t index = begin / kPage; index <= (end - 1) / kPage; ++index) {
            if (index == table.size()) {
                table.push_back({model_->pool->take(group), {}, 0});
                continue;
            }
            PageEntry &entry = table.mutate(index);
            if (!entry.page.writable()) {
                copy_page(entry.page);
            }
            if (entry.page.unclean()) { // whatever lies from `begin` on is written anew
                model_->pool->clear_from(entry.page, begin % kPage);
            }
        }
    }
}

// Names for the forward pass all pages that the sequence's positions may see, by addresses that
// mean something where it runs.
void Session::name_pages(Sequence &sequence) const {
    const uint64_t last = (sequence.begin + sequence.rows - 1) / kPage;
    sequence.evicted = evictions_.masks();
    for (size_t group = 0; group < pages_.size(); ++group) {
        const uint32_t window = model_->groups[group].window;
        Sequence::Pages &pages = sequence.pages[group];
        pages.first = first_visible(sequence.begin, window) / kPage;
        for (size_t index = pages.first; index <= last; ++index) {
            const PageAddress address = pages_[group][index].page.address(); // null: evicted
            pages.data.push_back(reinterpret_cast<uint16_t *>(address));
        }
    }
}

// Digests the pages that became full between two positions, all at once.
void Session::digest_full_pages(uint64_t begin, uint64_t end) {
    const uint64_t first = begin / kPage, count = end / kPage - first;
    if (count == 0) {
        return;
    }
    std::vector<PageEntry *> entries;
    std::vector<const PageRef *> full;
    for (PageTable &table : pages_) {
        for (uint64_t index = first; index < first + count; ++index) {
            entries.push_back(&table.mutate(index));
            full.push_back(&entries.back()->page);
        }
    }
    for_each_page(*model_->pool, *model_->threads, full, [&](size_t i, const uint16_t *numbers) {
        const auto group = static_cast<uint32_t>(i / count);
        const PageShape &shape = model_->pool->shape(group);
        entries[i]->digest = page_digest(group, first + i % count, numbers, shape.rows(), kPage,
                                         kPage, shape.head_dim);
        entries[i]->digested = kPage;
    });
    tell_pages(PageOrigin::computed);
}

// Makes the table entries that release_outrun will empty this session's own, so that it cannot
// fail.
void Session::own_outrun(uint64_t position) {
    for (size_t group = 0; group < pages_.size(); ++group) {
        const uint64_t keep = keep_from(model_->groups[group].window, position) / kPage;
        for (uint64_t index = first_page_[group];
             index < std::min<uint64_t>(keep, pages_[group].size()); ++index) {
            pages_[group].mutate(index);
        }
    }
}

// Lets go of local layers' pages that no query from `position` on needs, starting at a page. Their
// table entries are this session's own.
void Session::release_outrun(uint64_t position, uint64_t from_page) noexcept {
    for (size_t group = 0; group < pages_.size(); ++group) {
        const uint64_t keep = keep_from(model_->groups[group].window, position) / kPage;
        for (uint64_t index = std::max(from_page, first_page_[group]);
             index < std::min<uint64_t>(keep, pages_[group].size()); ++index) {
            if (pages_[group][index].page) {
                pages_[group].mutate(index).page = PageRef();
            }
        }
    }
}

// Undoes a failed extend: the paths and pages it touched are this session's own, so nothing here
// needs memory.
void Session::roll_back(uint64_t position) noexcept {
    log_.truncate(position);
    cut(position);
    clear_beyond(position);
}

// Slots beyond the log may hold anything that a call wrote: they become zero again (C9). Where a
// far memory fails to, nothing is lost: no digest, file or query looks there, and the page knows
// that it is unclean, so that whoever writes to it next clears it first, and fails if that fails (a
// copy of it is unclean, too).
void Session::clear_beyond(uint64_t position) noexcept {
    if (position % kPage == 0) {
        return;
    }
    for (uint32_t group = 0; group < pages_.size(); ++group) {
        PageTable &table = pages_[group];
        const size_t last = position / kPage;
        if (last >= table.size() || !table[last].page || table.shared(last) ||
            !table[last].page.writable()) {
            continue; // never written by this call
        }
        try {
            model_->pool->clear_from(table[last].page, position % kPage);
        } catch (...) { // the page remembers
        }
    }
}

// Cuts the page tables to the pages that hold positions below `position`.
void Session::cut(uint64_t position) {
    known_ = known_.cut(position / kPage);
    profile_.cut(position);
    for (PageTable &table : pages_) {
        table.truncate((position + kPage - 1) / kPage);
        const auto slots = static_cast<uint32_t>(position % kPage);
        const size_t last = position / kPage;
        if (slots != 0 && last < table.size() && table[last].knows_beyond(slots)) {
            table.mutate(last).forget_beyond(slots);
        }
    }
}

// Cuts a timeline that shares nothing with others, in place: nothing here needs memory. Not below
// the floor, nor to 0.
void Session::shorten(uint64_t position) noexcept {
    if (position < log_.size()) {
        roll_back(position);
        hidden_valid_ = false;
        row_valid_ = false;
        stored_logits_.reset();
        account();
    }
}

// The lowest position whose windows are there, and behind which nothing was evicted.
uint64_t Session::append_floor() const {
    uint64_t floor = evictions_.last();
    for (size_t group = 0; group < pages_.size(); ++group) {
        if (first_page_[group] > 0) {
            floor = std::max(floor, first_page_[group] * kPage + model_->groups[group].window);
        }
    }
    return floor;
}

// The lowest position that a rewind reaches without computing anything again, apart from 0, and
// from what require_hidden does: for that, what the first position of a chunk sees must still be
// there.
uint64_t Session::rewind_floor() const {
    const uint64_t floor = append_floor();
    const ProfileChunk *chunk = floor > 0 ? profile_.chunk_of(floor - 1) : nullptr;
    if (chunk == nullptr || chunk->begin + 1 >= floor || floor == evictions_.last()) {
        return floor;
    }
    return std::min<uint64_t>(chunk->end() + 1, log_.size());
}

// The listener is told at once what the session holds. Strong guarantee.
void Session::set_trace(const TraceListener *listener, PageOrigin origin) {
    TraceRef fresh;
    if (listener != nullptr) {
        fresh = TraceRef(std::make_unique<Trace>(*listener, *model_));
        fresh->compare(pages_, origin);
    }
    trace_ = std::move(fresh);
}

SessionInfo Session::info() const {
    SessionInfo info{};
    info.position = log_.size();
    info.capacity = capacity_;
    info.window = model_->groups.back().window;
    info.window_retain = window_retain_;
    info.pending_bytes = pending_system_.size();
    info.evicted = evictions_.count();
    info.foreign = profile_.foreign;
    info.rewind_floor = rewind_floor();
    info.tokens_reused = tokens_reused_;
    for (size_t group = 0; group < pages_.size(); ++group) {
        info.window_begin = std::max(info.window_begin, first_page_[group] * kPage);
        const uint64_t bytes = model_->pool->shape(static_cast<uint32_t>(group)).bytes();
        for (size_t index = first_page_[group]; index < pages_[group].size(); ++index) {
            if (!pages_[group][index].page) {
                continue; // evicted
            }
            const bool shared = pages_[group].shared(index) || !pages_[group][index].page.unique();
            ++(shared ? info.pages_shared : info.pages_own);
            info.kv_bytes += bytes;
        }
    }
    return info;
}

void Session::copy_kv(uint32_t layer, uint64_t begin, uint64_t end, uint16_t *keys,
                      uint16_t *values) {
    const LayerPlace place = model_->layer_places[layer];
    const PageShape &shape = model_->pool->shape(place.group);
    const size_t size_bytes = shape.head_dim * sizeof(uint16_t);
    const uint16_t *layer_numbers = nullptr; // of the position's page, [key, value][kv_head]
    PageStaging staging(*model_->pool);
    for (uint64_t position = begin; position < end; ++position) {
        const PageEntry &entry = pages_[place.group][position / kPage];
        if (!entry.page) {
            const bool evicted = evictions_.whole(position / kPage);
            fail(Status::not_found, "layer %u has released position %llu (%s%u)", layer,
                 Number{position}, evicted ? "evicted; window of " : "window of ",
                 model_->groups[place.group].window);
        }
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
