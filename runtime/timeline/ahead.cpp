// Computes, takes and drops rows ahead of the log; see ahead.h.
#include "runtime/timeline/ahead.h"

#include <cassert>

#include "runtime/compute/forward.h"
#include "runtime/compute/profile.h"
#include "runtime/timeline/append.h"

namespace stasis {

void compute_ahead(Timeline &timeline, std::span<const TokenEntry> entries, Pass &pass,
                   const Sampling &sampling, DrawnRows *run) {
    assert(!entries.empty() && !timeline.states.used()); // whose rows could not be dropped
    const Network &network = *timeline.network;
    Append append{&timeline, entries};
    uint64_t promised = 0;
    append.reserve(false, promised);
    try {
        pass.fit(entries.size());
        pass.clear();
        append.stage({entries.size(), 0}, pass);
        if (run != nullptr) {
            network.backend->draw_ahead(pass, sampling, *run);
            return;
        }
        forward(pass);
        if (pass.sequences[append.sequence].failed) {
            fail_sequence(network, pass.sequences[append.sequence]);
        }
    } catch (...) {
        append.abort();
        throw;
    }
}

void take_ahead(Timeline &timeline, const TokenEntry &entry, const uint16_t *hidden) {
    const uint64_t begin = timeline.position();
    assert(hidden != nullptr && timeline.pages.front().size() > begin / kPage);
    Append append{&timeline, {&entry, 1}};
    append.start = begin;
    append.done = 1;
    try {
        timeline.log.push_back(entry);
        timeline.digest_full_pages(begin, begin + 1);
        timeline.make_known(begin, begin + 1, hidden);
        append.commit(hidden);
    } catch (...) {
        append.abort();
        throw;
    }
}

void drop_ahead(Timeline &timeline) noexcept {
    timeline.roll_back(timeline.position());
    timeline.count_held();
    // At most as many as were reported before, so nothing can fail.
    timeline.tell_pages(PageOrigin::before);
}

} // namespace stasis
