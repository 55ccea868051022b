// Computes, takes and drops rows ahead of the log; see ahead.h.
#include "runtime/timeline/ahead.h"

#include <algorithm>
#include <cassert>

#include "runtime/compute/forward.h"
#include "runtime/compute/profile.h"
#include "runtime/timeline/append.h"

namespace stasis {

uint64_t most_ahead(const Timeline &timeline) {
    const uint64_t position = timeline.position();
    const uint64_t left = timeline.capacity - position;
    return timeline.states.used() ? std::min(left, next_checkpoint(position) - position) : left;
}

RowsAhead compute_ahead(Timeline &timeline, std::span<const TokenEntry> entries, Pass &pass,
                        const Sampling &sampling, DrawnRows *run) {
    assert(!entries.empty() && timeline.states.holds(timeline.position()));
    assert(!timeline.states.used() || entries.size() <= most_ahead(timeline));
    const Network &network = *timeline.network;
    Append append{&timeline, entries};
    RowsAhead ahead{timeline.position(), entries.size(), {}, {}};
    uint64_t promised = 0;
    append.reserve(false, promised);
    try {
        pass.fit(entries.size());
        pass.clear();
        append.stage({entries.size(), 0}, pass);
        if (timeline.states.used()) {
            ahead.before = timeline.states.at(ahead.begin);
            ahead.after = std::move(append.next_states.back());
            timeline.states.reserve(); // for the state of the rows that will have been taken
            network.backend->keep_inputs(pass);
        }
        if (run != nullptr) {
            network.backend->draw_ahead(pass, sampling, *run);
            return ahead;
        }
        forward(pass);
        if (pass.sequences[append.sequence].failed) {
            fail_sequence(network, pass.sequences[append.sequence]);
        }
    } catch (...) {
        append.abort();
        throw;
    }
    return ahead;
}

void take_ahead(Timeline &timeline, RowsAhead &ahead, const TokenEntry &entry,
                const uint16_t *hidden) {
    const uint64_t begin = timeline.position();
    assert(hidden != nullptr && timeline.pages.front().size() > begin / kPage);
    Append append{&timeline, {&entry, 1}};
    append.start = begin;
    append.done = 1;
    try {
        timeline.log.push_back(entry);
        timeline.digest_full_pages(begin, begin + 1);
        if (ahead.after && begin + 1 == ahead.begin + ahead.rows) {
            timeline.states.add(begin + 1, std::move(ahead.after), begin);
        }
        timeline.make_known(begin, begin + 1, hidden);
        append.commit(hidden);
    } catch (...) {
        append.abort();
        throw;
    }
}

void drop_ahead(Timeline &timeline, RowsAhead &ahead, Pass &pass) noexcept {
    const uint64_t position = timeline.position();
    timeline.roll_back(position);
    timeline.count_held();
    // At most as many as were reported before, so nothing can fail.
    timeline.tell_pages(PageOrigin::before);

    if (ahead.after && position > ahead.begin && !timeline.states.holds(position)) {
        timeline.network->backend->recur_again(pass, position - ahead.begin);
        timeline.states.add(position, std::move(ahead.after), 0); // has room
    }
    ahead = RowsAhead();
}

} // namespace stasis
