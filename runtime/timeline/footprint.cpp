// Counts what timelines of a length hold; see footprint.h.
#include "runtime/timeline/footprint.h"

#include <algorithm>

#include "runtime/timeline/append.h"

namespace stasis {

namespace {

uint64_t pages_of(uint64_t positions) {
    return (positions + kPage - 1) / kPage;
}

// Returns the most pages that consecutive positions touch, wherever they begin.
uint64_t pages_touched(uint64_t positions) {
    return positions == 0 ? 0 : (positions + kPage - 2) / kPage + 1;
}

// Returns the most pages of a group that a timeline holds until it has so many positions. An append
// keeps what its start needs until it ends (Append::accept), beside what its last pass sees.
uint64_t most_pages(const Timeline &empty, uint32_t window, uint64_t positions) {
    if (window == 0) {
        return pages_of(positions);
    }
    const uint64_t kept = window + empty.window_retain;
    return std::min(pages_of(positions), pages_touched(kept) + pages_touched(kept + kChunk));
}

// Returns the states that remain after `positions` were computed: the last, and checkpoints.
uint64_t states_kept(const StatePool &pool, uint64_t positions) {
    uint64_t states = positions == 0 ? 0 : 1;
    for (uint64_t at = kCheckpointPositions; at < positions; at += kCheckpointPositions) {
        states += keeps_checkpoint(at, positions) ? 1 : 0;
    }
    return std::min(states, std::max<uint64_t>(pool.budget_bytes() / pool.bytes(), 2));
}

} // namespace

Footprint footprint(const Timeline &empty, uint64_t positions) {
    if (positions > empty.capacity) {
        fail(Status::invalid_argument, "%llu positions exceed the capacity of %llu",
             Number{positions}, Number{empty.capacity});
    }
    const Network &network = *empty.network;
    Footprint result;
    for (size_t group = 0; group < network.groups.size(); ++group) {
        const uint32_t window = network.groups[group].window;
        const uint64_t page_bytes = network.page_shapes[group].bytes();
        const uint64_t released = empty.keep_from(window, positions) / kPage;
        result.kv_bytes += (pages_of(positions) - released) * page_bytes;
        result.kv_most_bytes += most_pages(empty, window, positions) * page_bytes;
        result.position_bytes += page_bytes / kPage;
        result.global_position_bytes += window == 0 ? page_bytes / kPage : 0;
        result.log_bytes += PageTable::nodes_of(pages_of(positions)) * sizeof(PageTable::Node);
    }
    result.log_bytes += TokenLog::nodes_of(positions) * sizeof(TokenLog::Node);
    if (empty.states.used()) {
        result.states = states_kept(*network.states, positions);
        result.state_bytes = result.states * network.states->bytes();
    }
    if (empty.sums.tracking() != Tracking::off) {
        result.tracking_bytes =
            2 * pages_of(positions) * empty.sums.rows() * kPage * sizeof(uint64_t);
    }
    const Config &config = network.config;
    result.fixed_bytes = config.hidden * sizeof(uint16_t) + config.vocabulary * sizeof(float);
    return result;
}

} // namespace stasis
