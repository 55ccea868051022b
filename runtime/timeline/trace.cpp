// Reports changes of pages by comparing tables with the last report; see trace.h.
#include "runtime/timeline/trace.h"

#include <algorithm>

#include "runtime/compute/network.h"
#include "runtime/compute/pass.h"
#include "runtime/kernels/visibility.h"

namespace stasis {

namespace {

TraceKind kind_of(PageOrigin origin, bool replaces, const PageRef &page) {
    switch (origin) {
    case PageOrigin::computed:
        return replaces ? TraceKind::copied : TraceKind::taken;
    case PageOrigin::known:
        return TraceKind::shared;
    case PageOrigin::before:
        return TraceKind::held;
    case PageOrigin::elsewhere:
        break;
    }
    return page.unique() ? TraceKind::taken : TraceKind::shared;
}

} // namespace

Trace::Trace(const TraceListener &listener, const Network &network)
    : listener_(listener), network_(network), told_(network.groups.size()) {}

void Trace::page(TraceKind kind, uint32_t group, uint64_t index) const {
    const Told &told = told_[group][index];
    // A page counts as an event of its positions, with its digest once it is full.
    listener_.hear(listener_.user,
                   {kind, group, index * kPage, (index + 1) * kPage,
                    network_.page_shapes[group].bytes(), told.full ? told.digest : Digest()});
}

void Trace::compare_page(uint32_t group, uint64_t index, const PageEntry &entry,
                         PageOrigin origin) {
    Told &told = told_[group][index];
    const PageAddress now = entry.page.address(), none = PageAddress::null;
    const bool full = entry.digested == kPage;
    if (told.page == now) {
        const bool filled = now != none && full && !told.full;
        told.full = full;
        told.digest = entry.digest;
        if (filled) {
            page(TraceKind::filled, group, index);
        }
        return;
    }
    // The address changed: the old page is released, and a new one may take its place.
    const bool replaces = told.page != none && now != none;
    const TraceKind kind =
        now != none ? kind_of(origin, replaces, entry.page) : TraceKind::released;
    if (told.page != none && kind != TraceKind::copied) {
        page(TraceKind::released, group, index);
    }
    told.page = now;
    told.full = full;
    told.digest = entry.digest;
    if (now != none) {
        page(kind, group, index);
    }
}

void Trace::compare(std::span<const PageTable> tables, PageOrigin origin) {
    for (size_t group = 0; group < tables.size(); ++group) { // only this can fail
        told_[group].resize(std::max(told_[group].size(), tables[group].size()));
    }
    const PageEntry none;
    for (uint32_t group = 0; group < tables.size(); ++group) {
        const PageTable &table = tables[group];
        for (uint64_t index = 0; index < told_[group].size(); ++index) {
            compare_page(group, index, index < table.size() ? table[index] : none, origin);
        }
        told_[group].resize(table.size());
    }
}

void Trace::reads(const Sequence &sequence) const {
    if (!listener_.reads) {
        return;
    }
    const uint64_t last = sequence.begin + sequence.rows;
    for (uint32_t group = 0; group < sequence.pages.size(); ++group) {
        const Sequence::Pages &pages = sequence.pages[group];
        const uint64_t first =
            kernels::first_visible(sequence.begin, network_.groups[group].window);
        const auto held = [&](size_t i) { return i < pages.data.size() && pages.data[i]; };
        // One event for each run of pages that are held.
        for (size_t i = 0; i < pages.data.size(); ++i) {
            if (!held(i)) {
                continue;
            }
            size_t behind = i;
            while (held(behind)) {
                ++behind;
            }
            listener_.hear(listener_.user,
                           {TraceKind::read, group, std::max(first, (pages.first + i) * kPage),
                            std::min(last, (pages.first + behind) * kPage),
                            (behind - i) * network_.page_shapes[group].bytes()});
            i = behind;
        }
    }
}

void Trace::operation(TraceKind kind, uint64_t begin, uint64_t end, const Digest &digest) const {
    uint64_t bytes = 0; // of one position, in all layers
    for (uint32_t group = 0; group < network_.groups.size(); ++group) {
        bytes += network_.page_shapes[group].bytes() / kPage;
    }
    listener_.hear(listener_.user,
                   {kind, TraceEvent::kAllGroups, begin, end, (end - begin) * bytes, digest});
}

} // namespace stasis
