// Evictions to bytes and back, and the conditions on them; see evictions.h.
#include "format/evictions.h"

#include <algorithm>
#include <cstring>

#include "format/pages.h"
#include "format/state/bf16.h"

namespace stasis::format {

namespace {

void put(std::vector<uint8_t> &bytes, const void *data, size_t size_bytes) {
    const auto *from = static_cast<const uint8_t *>(data);
    bytes.insert(bytes.end(), from, from + size_bytes);
}

void put(std::vector<uint8_t> &bytes, uint64_t number) {
    put(bytes, &number, sizeof number);
}

// Reads the bytes one part after the other. Throws Error(corrupt) if they end too early.
struct Cursor {
    std::span<const uint8_t> left;

    void take(void *data, uint64_t size_bytes) {
        if (size_bytes > left.size()) {
            fail(Status::corrupt, "evictions: %zu bytes are left, %llu are needed", left.size(),
                 Number{size_bytes});
        }
        std::memcpy(data, left.data(), size_bytes);
        left = left.subspan(size_bytes);
    }
    uint64_t number() {
        uint64_t value = 0;
        take(&value, sizeof value);
        return value;
    }
    // Returns a count of items that take `item_bytes` each. The bytes must suffice for them, which
    // bounds what is allocated.
    uint64_t count(uint64_t item_bytes) {
        const uint64_t value = number();
        if (value > left.size() / item_bytes) {
            fail(Status::corrupt, "evictions: a count of %llu, %zu bytes are left", Number{value},
                 left.size());
        }
        return value;
    }
};

// Returns the ranges of all evictions, ascending.
std::vector<PositionRange> all_ranges(const State &state) {
    std::vector<PositionRange> all;
    for (const Eviction &eviction : state.evictions) {
        all.insert(all.end(), eviction.ranges.begin(), eviction.ranges.end());
    }
    std::sort(all.begin(), all.end(),
              [](const auto &a, const auto &b) { return a.begin < b.begin; });
    return all;
}

} // namespace

std::vector<uint8_t> build_evictions(const State &state) {
    std::vector<uint8_t> bytes;
    if (state.evictions.empty()) {
        return bytes;
    }
    put(bytes, state.evictions.size());
    for (const Eviction &eviction : state.evictions) {
        put(bytes, eviction.position);
        put(bytes, eviction.ranges.size());
        put(bytes, eviction.ranges.data(), eviction.ranges.size() * sizeof(PositionRange));
        put(bytes, eviction.hidden.data(), eviction.hidden.size() * sizeof(uint16_t));
    }
    return bytes;
}

void parse_evictions(std::span<const uint8_t> bytes, State &state) {
    const uint64_t hidden_bytes = uint64_t{state.hidden_size} * sizeof(uint16_t);
    Cursor cursor{bytes};
    const uint64_t count = cursor.count(2 * sizeof(uint64_t) + hidden_bytes);
    for (uint64_t i = 0; i < count; ++i) {
        Eviction &eviction = state.evictions.emplace_back();
        eviction.position = cursor.number();
        eviction.ranges.resize(cursor.count(sizeof(PositionRange)));
        cursor.take(eviction.ranges.data(), eviction.ranges.size() * sizeof(PositionRange));
        if (hidden_bytes > cursor.left.size()) {
            fail(Status::corrupt, "evictions: %zu bytes are left, a hidden state has %llu",
                 cursor.left.size(), Number{hidden_bytes});
        }
        eviction.hidden.resize(state.hidden_size);
        cursor.take(eviction.hidden.data(), hidden_bytes);
    }
    if (count == 0 || !cursor.left.empty()) {
        fail(Status::corrupt, "evictions: %llu of them, and %zu bytes behind them", Number{count},
             cursor.left.size());
    }
}

// Each eviction alone first, then all ranges together.
void check_evictions(const State &state, Status status) {
    uint64_t before = 0; // nothing can be evicted at position 0
    for (const Eviction &eviction : state.evictions) {
        if (eviction.position <= before || eviction.position > state.log.size()) {
            fail(status, "eviction at position %llu: expected one behind %llu, in a log of %zu",
                 Number{eviction.position}, Number{before}, state.log.size());
        }
        before = eviction.position;
        uint64_t end = UINT64_MAX; // of the range before; the first may begin at 0
        for (const PositionRange &range : eviction.ranges) {
            if (range.begin >= range.end || range.end > eviction.position ||
                (end != UINT64_MAX && range.begin <= end)) {
                fail(status, "eviction at position %llu: range [%llu, %llu)",
                     Number{eviction.position}, Number{range.begin}, Number{range.end});
            }
            end = range.end;
        }
        const bool finite = all_finite_bf16(eviction.hidden.data(), eviction.hidden.size());
        if (eviction.ranges.empty() || eviction.hidden.size() != state.hidden_size || !finite) {
            fail(status, "eviction at position %llu: no ranges, or a hidden state that is none",
                 Number{eviction.position});
        }
    }

    // Ascending ranges overlap if one begins before its predecessor ends.
    const std::vector<PositionRange> all = all_ranges(state);
    for (size_t i = 1; i < all.size(); ++i) {
        if (all[i].begin < all[i - 1].end) {
            fail(status, "position %llu was evicted twice", Number{all[i].begin});
        }
    }
}

std::vector<bool> evicted_pages(const State &state) {
    const uint64_t page = state.page_positions;
    std::vector<bool> whole(page_count(state.log.size(), state.page_positions));
    uint64_t begin = 0, end = 0; // joins ranges of different evictions that touch
    const auto mark = [&] {
        for (uint64_t index = (begin + page - 1) / page; (index + 1) * page <= end; ++index) {
            whole[index] = true;
        }
    };
    for (const PositionRange &range : all_ranges(state)) {
        if (range.begin != end) {
            mark();
            begin = range.begin;
        }
        end = range.end;
    }
    mark();
    return whole;
}

} // namespace stasis::format
