// Audits: computes a share of the pages again, each from the stored data before it; see verify.h.
#include <algorithm>
#include <cmath>
#include <map>

#include "format/state/decimal.h"
#include "runtime/compute/pass.h"
#include "runtime/compute/profile.h"
#include "runtime/snapshot/check.h"
#include "runtime/snapshot/export.h"
#include "runtime/snapshot/restore.h"
#include "runtime/snapshot/verify_steps.h"

namespace stasis {

namespace {

// The positions of a page that can be computed again: [from, end).
struct Reach {
    uint64_t from, end;
};

// Returns a timeline that holds the stored pages; nothing if the last window is not stored.
std::optional<Timeline> stored_timeline(const std::shared_ptr<Model> &model, const State &stored,
                                        const StoredPages &pages, const Watch &watch) {
    State whole = stored;
    const Evictions evictions(stored.evictions);
    for (size_t group = 0; group < whole.pages.size(); ++group) {
        const size_t elements = model->pool->shape(static_cast<uint32_t>(group)).elements();
        for (uint64_t index = 0; index < whole.pages[group].size(); ++index) {
            const auto data = std::make_shared<std::vector<uint16_t>>(elements);
            const bool kept = pages.stored(group, index);
            whole.pages[group][index].data = kept ? data->data() : nullptr;
            whole.pages[group][index].far = false;
            if (kept) {
                const PageInto into{group, index, data->data()};
                pages.read({&into, 1});
                whole.storage.push_back(data);
            }
            watch.step(0, stored.log.size());
        }
        const uint64_t last = whole.pages[group].size() - 1;
        if (whole.pages[group].back().data == nullptr && !evictions.whole(last)) {
            return std::nullopt;
        }
    }
    StoredPages kept = pages_of(whole, *model);
    kept.read_state = pages.read_state;
    return restore_timeline(*model, whole, nullptr, kept, Watch());
}

// Returns the pages that can be computed again, by index: the first one from nothing, others as far
// as the timeline can be rewound. Positions computed together under a profile are computed together
// again.
std::map<uint64_t, Reach> reachable(const State &stored, uint64_t floor) {
    const uint64_t positions = stored.log.size();
    const Profile &profile = stored.profile;
    std::map<uint64_t, Reach> pages;
    for (uint64_t begin = 0; begin < positions; begin += kPage) {
        const uint64_t end = std::min(begin + kPage, positions);
        uint64_t from = begin == 0 && profile.foreign == 0 ? 0 : std::max(begin, floor);
        // A chunk is computed whole, from its begin if that can be reached, or not at all.
        if (const ProfileChunk *chunk = profile.chunk_of(from)) {
            const bool whole = chunk->begin == 0 || chunk->begin >= floor;
            from = whole ? chunk->begin : chunk->end();
        }
        if (from < end) {
            pages[begin / kPage] = {from, end};
        }
    }
    return pages;
}

// Reports the positions between the first page, if it can be computed again, and the other
// reachable ones.
void note_unreachable(const std::map<uint64_t, Reach> &pages, uint64_t positions,
                      VerifyReport &report) {
    const bool first =
        !pages.empty() && pages.begin()->first == 0 && pages.begin()->second.from == 0;
    const uint64_t begin = first ? std::min(kPage, positions) : 0;
    const auto next = first ? std::next(pages.begin()) : pages.begin();
    const uint64_t end =
        next == pages.end() ? positions : std::max(next->first * kPage, next->second.from);
    if (begin < end) {
        report.unreachable_begin = begin;
        report.unreachable_end = end;
    }
}

// Drops the pages that are not drawn. Those with the lowest random numbers under the seed stay, so
// that each set of that size is equally likely.
void draw_pages(std::map<uint64_t, Reach> &pages, uint64_t last, const AuditOptions &options,
                VerifyReport &report) {
    std::vector<std::pair<uint64_t, uint64_t>> order; // random number, page
    for (const auto &[index, reach] : pages) {
        if (index != last) {
            order.emplace_back(random_bits(options.seed, index), index);
        }
    }
    std::sort(order.begin(), order.end());
    report.pages_reachable = order.size();
    const double share = options.percent / 100 * static_cast<double>(order.size());
    report.pages_drawn = std::min<uint64_t>(order.size(), static_cast<uint64_t>(std::ceil(share)));
    for (size_t i = report.pages_drawn; i < order.size(); ++i) {
        pages.erase(order[i].second);
    }
}

// Returns the timeline from which to compute a page: an empty one, or the stored one rewound to
// `position`.
Timeline start_at(Model &model, const State &stored, const std::optional<Timeline> &held,
                  uint64_t position) {
    if (position == 0) {
        TimelineOptions options;
        options.long_rope = has_long_rope(stored.model, model);
        return {model, options};
    }
    Timeline start(*held);
    start.rewind(position);
    return start;
}

// Computes the recurrent state before a page, from the stored one before it. What differs on the
// way is a divergence as well.
std::optional<Divergence> compute_start(Timeline &timeline, const Watch &watch) {
    if (timeline.states.holds(timeline.position())) {
        return std::nullopt;
    }
    try {
        PassLease pass(*timeline.network);
        timeline.require_hidden(*pass, watch);
    } catch (const Error &error) {
        if (error.status() != Status::diverged) {
            throw;
        }
        return diverged(Element::kv_cache, timeline.position() - 1, error.what());
    }
    return std::nullopt;
}

void compute_pages(const std::shared_ptr<Model> &model, const State &stored,
                   const StoredPages &pages, const AuditOptions &options,
                   const std::optional<Timeline> &held, const std::map<uint64_t, Reach> &chosen,
                   VerifyReport &report) {
    uint64_t total = 0;
    for (const auto &[index, reach] : chosen) {
        total += reach.end - reach.from;
    }
    Redraw redraw(stored, *model, options.watch);
    for (const auto &[index, reach] : chosen) {
        Timeline timeline = start_at(*model, stored, held, reach.from);
        if (const auto found = compute_start(timeline, options.watch)) {
            report.first = found;
            return;
        }
        recompute(timeline, redraw, pages, reach.end, options, report.positions, total);
        std::optional<Divergence> found = compare_page(timeline, stored, pages, index);
        if (!found && reach.end == stored.log.size()) {
            found = compare_rest(stored, export_state(timeline, settings_of(stored), *model));
        }
        report.first = earlier(redraw.first(), found);
        report.positions += reach.end - reach.from;
        report.drawn = redraw.drawn();
        report.drawn_otherwise = redraw.drawn_otherwise();
        if (report.first) {
            return; // later pages would start from other keys and values
        }
    }
}

} // namespace

VerifyReport audit(const std::shared_ptr<Model> &model, const State &stored,
                   const StoredPages &pages, const AuditOptions &options) {
    if (!(options.percent > 0 && options.percent <= 100)) {
        fail(Status::invalid_argument, "an audit of %s percent: expected more than 0, at most 100",
             decimal(options.percent).c_str());
    }
    check_comparable(stored, *model);
    const uint64_t positions = stored.log.size();
    VerifyReport report;
    if (positions == 0) {
        return report;
    }

    // Restores the stored pages, which checks their digests.
    std::optional<Timeline> held;
    try {
        held = stored_timeline(model, stored, pages, options.watch);
    } catch (const Error &error) {
        if (error.status() != Status::diverged) {
            throw;
        }
        report.first = diverged(Element::logits, positions - 1, error.what());
        return report;
    }

    // Chooses the pages, then computes and compares them.
    const uint64_t floor = held ? held->append_floor() : positions;
    std::map<uint64_t, Reach> chosen = reachable(stored, std::max(floor, stored.profile.foreign));
    if (chosen.empty()) {
        check_computable(stored.profile);
    }
    note_unreachable(chosen, positions, report);
    draw_pages(chosen, (positions - 1) / kPage, options, report);
    compute_pages(model, stored, pages, options, held, chosen, report);
    return report;
}

} // namespace stasis
