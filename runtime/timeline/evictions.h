// The positions that a session has evicted: events in the order of the log, and for each block of
// attention the slots that later queries do not see. Copying costs two counts. A change copies the
// masks and the list of events, but not the events. Knows nothing of pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "format/state/state.h"

namespace stasis {

class Evictions {
  public:
    using Event = std::shared_ptr<const Eviction>;

    Evictions() = default;
    // Takes the events of a State, which were checked.
    explicit Evictions(std::span<const Eviction> events);

    bool empty() const { return events_ == nullptr; }
    std::span<const Event> events() const;
    // Position of the last event; 0: there is none.
    uint64_t last() const { return empty() ? 0 : events_->back()->position; }
    // Returns the number of evicted positions.
    uint64_t count() const { return count_; }

    // Returns a digest of all events at positions below `end`; zero: there are none.
    Digest digest_before(uint64_t end) const;

    // [block] bit s: slot s is evicted. No slot of a block past the end is evicted.
    std::span<const uint64_t> masks() const;
    bool whole(uint64_t block) const;
    // Returns the number of blocks of [begin, end) that are evicted whole.
    uint64_t whole_blocks(uint64_t begin, uint64_t end) const;

    // Returns the parts of [begin, end) that are not evicted yet, ascending.
    std::vector<PositionRange> rest(uint64_t begin, uint64_t end) const;
    // Adds ranges that `rest` returned, at a position not before the last event's. `hidden` is the
    // final hidden state before `position`. Strong guarantee.
    void add(uint64_t position, std::span<const PositionRange> ranges,
             std::span<const uint16_t> hidden);

  private:
    std::shared_ptr<const std::vector<Event>> events_;
    // [event] of this event and those before it.
    std::shared_ptr<const std::vector<Digest>> digests_;
    std::shared_ptr<const std::vector<uint64_t>> masks_;
    uint64_t count_ = 0;
};

} // namespace stasis
