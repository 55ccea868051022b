// Stores evictions as events and as masks of slots; see evictions.h.
#include "runtime/timeline/evictions.h"

#include <algorithm>
#include <bit>

#include "runtime/kernels/visibility.h"
#include "runtime/kv/page.h"

namespace stasis {

namespace {

using kernels::slots_of;

// Returns the union of two lists of ranges that share no position, in order; adjacent ranges are
// joined.
std::vector<PositionRange> join(std::span<const PositionRange> a,
                                std::span<const PositionRange> b) {
    std::vector<PositionRange> all(a.begin(), a.end());
    all.insert(all.end(), b.begin(), b.end());
    std::sort(all.begin(), all.end(),
              [](const auto &x, const auto &y) { return x.begin < y.begin; });
    std::vector<PositionRange> joined;
    for (const PositionRange &range : all) {
        if (!joined.empty() && joined.back().end == range.begin) {
            joined.back().end = range.end;
        } else {
            joined.push_back(range);
        }
    }
    return joined;
}

// Marks the slots of a range.
void mark(std::vector<uint64_t> &masks, const PositionRange &range) {
    const uint64_t blocks = (range.end + kPage - 1) / kPage;
    masks.resize(std::max<size_t>(masks.size(), blocks));
    for (uint64_t block = range.begin / kPage; block < blocks; ++block) {
        masks[block] |= slots_of(range.begin, range.end - 1, block);
    }
}

// Returns the digest of an event and the events before it, whose digest is `before`.
Digest digest_of(const Digest &before, const Eviction &event) {
    Sha256 hash;
    hash.digest(before).u64(event.position);
    for (const PositionRange &range : event.ranges) {
        hash.u64(range.begin).u64(range.end);
    }
    return hash.finish();
}

} // namespace

Evictions::Evictions(std::span<const Eviction> events) {
    if (events.empty()) {
        return;
    }
    auto list = std::make_shared<std::vector<Event>>();
    auto digests = std::make_shared<std::vector<Digest>>();
    auto words = std::make_shared<std::vector<uint64_t>>();
    for (const Eviction &event : events) {
        list->push_back(std::make_shared<const Eviction>(event));
        digests->push_back(digest_of(digests->empty() ? Digest() : digests->back(), event));
        for (const PositionRange &range : event.ranges) {
            mark(*words, range);
            count_ += range.end - range.begin;
        }
    }
    events_ = std::move(list);
    digests_ = std::move(digests);
    masks_ = std::move(words);
}

std::span<const Evictions::Event> Evictions::events() const {
    return empty() ? std::span<const Event>() : *events_;
}

Digest Evictions::digest_before(uint64_t end) const {
    const std::span<const Event> all = events();
    const auto behind =
        std::lower_bound(all.begin(), all.end(), end, [](const Event &event, uint64_t value) {
            return event->position < value;
        });
    return behind == all.begin() ? Digest()
                                 : (*digests_)[static_cast<size_t>(behind - all.begin()) - 1];
}

std::span<const uint64_t> Evictions::masks() const {
    return empty() ? std::span<const uint64_t>() : *masks_;
}

bool Evictions::whole(uint64_t block) const {
    return block < masks().size() && masks()[block] == ~uint64_t{0};
}

uint64_t Evictions::whole_blocks(uint64_t begin, uint64_t end) const {
    uint64_t count = 0;
    for (uint64_t block = begin; block < std::min<uint64_t>(end, masks().size()); ++block) {
        count += whole(block) ? 1 : 0;
    }
    return count;
}

std::vector<PositionRange> Evictions::rest(uint64_t begin, uint64_t end) const {
    std::vector<PositionRange> ranges;
    for (uint64_t block = begin / kPage; block * kPage < end; ++block) {
        uint64_t left = slots_of(begin, end - 1, block);
        if (block < masks().size()) {
            left &= ~masks()[block];
        }
        while (left != 0) {
            const auto low = static_cast<uint64_t>(std::countr_zero(left));
            const auto length = static_cast<uint64_t>(std::countr_one(left >> low));
            const uint64_t from = block * kPage + low;
            if (!ranges.empty() && ranges.back().end == from) {
                ranges.back().end += length;
            } else {
                ranges.push_back({from, from + length});
            }
            left &= ~slots_of(from, from + length - 1, block);
        }
    }
    return ranges;
}

// Builds the changed lists first and installs them at the end, where nothing can fail.
void Evictions::add(uint64_t position, std::span<const PositionRange> ranges,
                    std::span<const uint16_t> hidden) {
    if (ranges.empty()) {
        return;
    }
    const auto old_events = events();
    const auto old_masks = masks();
    auto changed_events =
        std::make_shared<std::vector<Event>>(old_events.begin(), old_events.end());
    auto changed_masks =
        std::make_shared<std::vector<uint64_t>>(old_masks.begin(), old_masks.end());
    auto digests = std::make_shared<std::vector<Digest>>();
    if (!old_events.empty()) {
        digests->assign(digests_->begin(), digests_->end());
    }

    // Evictions at one position form one event.
    if (changed_events->empty() || last() != position) {
        Eviction event{position, {ranges.begin(), ranges.end()}, {hidden.begin(), hidden.end()}};
        changed_events->push_back(std::make_shared<const Eviction>(std::move(event)));
    } else {
        Eviction event = *changed_events->back();
        event.ranges = join(event.ranges, ranges);
        changed_events->back() = std::make_shared<const Eviction>(std::move(event));
        digests->pop_back();
    }
    digests->push_back(
        digest_of(digests->empty() ? Digest() : digests->back(), *changed_events->back()));

    // The masks, and the count of positions.
    uint64_t count = count_;
    for (const PositionRange &range : ranges) {
        mark(*changed_masks, range);
        count += range.end - range.begin;
    }
    events_ = std::move(changed_events);
    digests_ = std::move(digests);
    masks_ = std::move(changed_masks);
    count_ = count;
}

} // namespace stasis
