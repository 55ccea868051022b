// Evictions: positions that no later token sees, and the log computed again with them at their
// places; see session.h.
#include <algorithm>

#include "runtime/compute/profile.h"
#include "runtime/compute/workspace.h"
#include "runtime/session/session.h"

namespace stasis {

void Session::evict(uint64_t begin, uint64_t end) {
    if (begin > end || end > log_.size()) {
        fail(Status::invalid_argument,
             "eviction of positions [%llu, %llu): expected a range within the session's %llu",
             Number{begin}, Number{end}, Number{log_.size()});
    }
    const std::vector<PositionRange> ranges = evictions_.rest(begin, end);
    if (ranges.empty()) {
        return;
    }
    {
        WorkspaceLease work(*model_);
        require_hidden(*work); // what the last token saw may be gone behind this
    }
    Session changed(*this); // all that can fail happens to the copy
    changed.held_bytes_ = 0;
    changed.evictions_.add(log_.size(), ranges, hidden_);
    changed.release_evicted(ranges);
    changed.account();
    swap_timeline(changed);
    tell_pages(PageOrigin::elsewhere); // as many as before, so nothing can fail
    tell(TraceKind::evict, begin, end);
}

// Lets go of the pages that these ranges were the last visible part of.
void Session::release_evicted(std::span<const PositionRange> ranges) {
    for (PageTable &table : pages_) {
        for (const PositionRange &range : ranges) {
            const uint64_t last = (range.end - 1) / kPage;
            for (uint64_t index = range.begin / kPage; index <= last; ++index) {
                if (evictions_.whole(index) && table[index].page) {
                    table.mutate(index).page = PageRef();
                }
            }
        }
    }
}

void Session::replay(std::span<const TokenEntry> entries, const Evictions &evictions,
                     const RunOptions &options) {
    if (options.schedule != nullptr) {
        check_computable(*options.schedule);
    }
    const auto extend_to = [&](uint64_t end) {
        WatchPart part{options.watch, log_.size(), entries.size()};
        RunOptions run = options;
        run.watch = part.watch();
        extend(entries.subspan(log_.size(), end - log_.size()), run);
    };
    for (const Evictions::Event &eviction : evictions.events()) {
        if (eviction->position > entries.size()) {
            break;
        }
        extend_to(eviction->position);
        for (const PositionRange &range : eviction->ranges) {
            evict(range.begin, range.end);
        }
    }
    extend_to(entries.size());
}

} // namespace stasis
