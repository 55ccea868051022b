// Creates, cuts, evicts and describes timelines; see timeline.h. append.cpp appends, pages.cpp
// manages pages.
#include "runtime/timeline/timeline.h"

#include <algorithm>
#include <cassert>

#include "runtime/compute/pass.h"
#include "runtime/kernels/received.h"

namespace stasis {

namespace {

AttentionSums tracked_sums(const Network &network, Tracking tracking, uint64_t capacity) {
    const uint64_t heads = uint64_t{network.config.layers} * network.config.heads;
    if (tracking != Tracking::off && capacity * heads >= kernels::kReceivedLimit) {
        fail(Status::unsupported,
             "attention of %llu positions by %llu heads of all layers cannot be added up: the sums "
             "hold for a capacity of %llu",
             static_cast<Number>(capacity), static_cast<Number>(heads),
             static_cast<Number>((kernels::kReceivedLimit - 1) / heads));
    }
    return {tracking, static_cast<size_t>(heads)};
}

} // namespace

Timeline::Timeline(Network &network_, const TimelineOptions &options)
    : network(&network_), log(*network_.log_nodes), states(*network_.states),
      held(network_.held_bytes) {
    const Config &config = network->config;
    capacity = options.capacity == 0 ? config.context : options.capacity;
    if (capacity > config.context) {
        fail(Status::invalid_argument, "capacity %llu exceeds the model's context of %u positions",
             Number{capacity}, config.context);
    }
    const uint32_t long_from = config.long_rope_from();
    long_rope = long_from != 0 && options.long_rope.value_or(capacity > long_from);
    if (options.reserve > capacity) {
        fail(Status::invalid_argument, "reserve %llu exceeds the capacity of %llu positions",
             Number{options.reserve}, Number{capacity});
    }
    // Whether this timeline shares pages, and how much of a window it keeps.
    domain = options.domain;
    profile.id = network->profile;
    // Under a profile the bits of a page do not follow from its tokens alone.
    shares = domain != TimelineOptions::kPrivate && options.tracking == Tracking::off &&
             profile.id.empty();
    const uint32_t window = network->groups.back().window;
    window_retain = options.window_retain == TimelineOptions::kDefaultRetain
                        ? window
                        : std::min<uint64_t>(options.window_retain, capacity);

    // The pages return to the pool's free pages at the end of the constructor.
    std::vector<PageRef> reserved;
    for (uint32_t group = 0; group < network->groups.size(); ++group) {
        pages.emplace_back(*network->table_nodes);
        first_page.push_back(0);
        const uint32_t layer_window = network->groups[group].window;
        const uint64_t positions =
            layer_window == 0 ? options.reserve
                              : std::min(options.reserve, layer_window + window_retain + kPage);
        for (uint64_t page = 0; page < (positions + kPage - 1) / kPage; ++page) {
            reserved.push_back(network->pool->take(group)); // zeroed, so the memory is backed
        }
    }
    if (states.used() && options.reserve != 0) { // those that an append needs
        const StateRef last = network->states->take(), following = network->states->take();
    }
    hidden.numbers.resize(config.hidden);
    sums = tracked_sums(*network, options.tracking, capacity);
    assert(consistent());
}

// Reports whether the cheap invariants hold.
bool Timeline::consistent() const {
    bool right = pages.size() == network->groups.size() && first_page.size() == pages.size() &&
                 log.size() <= capacity && evictions.last() <= log.size() &&
                 (!log.empty() || !hidden.valid) && (hidden.valid || !next.valid) &&
                 (profile.chunks.empty() || profile.chunks.back().end() <= log.size()) &&
                 states.nearest(UINT64_MAX) <= log.size();
    for (size_t group = 0; right && group < pages.size(); ++group) {
        right = pages[group].size() == (log.size() + kPage - 1) / kPage &&
                (log.empty() || first_page[group] * kPage < log.size());
    }
    return right;
}

void Timeline::become(Timeline next_) noexcept {
    assert(next_.consistent() && next_.network == network);
    assert(!trace || std::equal(next_.pages.begin(), next_.pages.end(), pages.begin(), pages.end(),
                                [](const PageTable &after, const PageTable &before) {
                                    return after.size() <= before.size();
                                }));
    std::swap(next_.trace, trace);
    std::swap(next_, *this);
    tell_pages(PageOrigin::elsewhere); // at most as many pages as before, so nothing can fail
}

void Timeline::rewind(uint64_t position) {
    assert(position <= log.size() && (position == 0 || position >= append_floor()));
    Timeline shorter(*this); // only this copy can fail
    shorter.log.truncate(position);
    shorter.cut(position);
    shorter.hidden.valid = false;
    shorter.next.reset();
    shorter.sums.forget();
    // Position 0 is a reset; at the last eviction the hidden state before it is stored.
    if (position == 0) {
        std::fill(shorter.first_page.begin(), shorter.first_page.end(), 0);
        shorter.evictions = Evictions();
        shorter.unproven = 0;
    } else if (position == evictions.last()) {
        shorter.hidden.numbers = evictions.events().back()->hidden;
        shorter.hidden.valid = true;
    }
    shorter.count_held();
    become(std::move(shorter));
}

void Timeline::shorten(uint64_t position) noexcept {
    assert(position > 0 && position >= append_floor());
    assert(position >= log.size() || !log.shared(position));
    if (position < log.size()) {
        roll_back(position);
        hidden.valid = false;
        next.reset();
        count_held();
    }
}

uint64_t Timeline::append_floor() const {
    uint64_t floor = evictions.last();
    for (size_t group = 0; group < pages.size(); ++group) {
        if (first_page[group] > 0) {
            floor = std::max(floor, first_page[group] * kPage + network->groups[group].window);
        }
    }
    return floor;
}

// Raises append_floor() if it is inside a chunk: require_hidden needs the pages that the first
// position of a chunk sees.
uint64_t Timeline::rewind_floor() const {
    const uint64_t floor = append_floor();
    const ProfileChunk *chunk = floor > 0 ? profile.chunk_of(floor - 1) : nullptr;
    if (chunk == nullptr || chunk->begin + 1 >= floor || floor == evictions.last()) {
        return floor;
    }
    return std::min<uint64_t>(chunk->end() + 1, log.size());
}

void Timeline::evict(uint64_t begin, uint64_t end) {
    if (begin > end || end > log.size()) {
        fail(Status::invalid_argument,
             "eviction of positions [%llu, %llu): expected a range within the session's %llu",
             Number{begin}, Number{end}, Number{log.size()});
    }
    if (states.used()) {
        fail(Status::unsupported, "evicting from a recurrent layer is impossible: every position "
                                  "is part of its state");
    }
    const std::vector<PositionRange> ranges = evictions.rest(begin, end);
    if (ranges.empty()) {
        return;
    }
    {
        PassLease pass(*network);
        require_hidden(*pass); // before pages are released that the last token sees
    }
    Timeline changed(*this); // only this copy can fail
    changed.evictions.add(log.size(), ranges, hidden.numbers);
    changed.release_evicted(ranges);
    changed.count_held();
    become(std::move(changed));
    tell(TraceKind::evict, begin, end);
}

// Releases the pages that no query can see any more because of these ranges.
void Timeline::release_evicted(std::span<const PositionRange> ranges) {
    for (PageTable &table : pages) {
        for (const PositionRange &range : ranges) {
            const uint64_t last = (range.end - 1) / kPage;
            for (uint64_t index = range.begin / kPage; index <= last; ++index) {
                if (evictions.whole(index) && table[index].page) {
                    table.mutate(index).page = PageRef();
                }
            }
        }
    }
}

void Timeline::set_trace(const TraceListener *listener, PageOrigin origin) {
    TraceRef fresh;
    if (listener != nullptr) {
        fresh = TraceRef(std::make_unique<Trace>(*listener, *network));
        fresh->compare(pages, origin);
    }
    trace = std::move(fresh);
}

TimelineInfo Timeline::info() const {
    TimelineInfo info{};
    info.position = log.size();
    info.capacity = capacity;
    info.window = network->groups.back().window;
    info.window_retain = window_retain;
    info.evicted = evictions.count();
    info.foreign = profile.foreign;
    info.states = states.all().size();
    info.rewind_floor = rewind_floor();
    info.tokens_reused = tokens_reused;
    for (size_t group = 0; group < pages.size(); ++group) {
        info.window_begin = std::max(info.window_begin, first_page[group] * kPage);
        const uint64_t bytes = network->page_shapes[group].bytes();
        const size_t end = pages_of_log(group);
        for (size_t index = first_page[group]; index < end; ++index) {
            const PageRef &page = pages[group][index].page;
            if (!page) {
                continue; // evicted
            }
            const bool shared = pages[group].shared(index) || !page.unique();
            ++(shared ? info.pages_shared : info.pages_own);
            info.kv_bytes += bytes;
        }
    }
    return info;
}

} // namespace stasis
