// Verifies a state by computing everything again; see verify.h. The first pass computes the whole
// log and compares digests. Only if a page's digest differs does a second pass search for the
// position.
#include "runtime/snapshot/verify.h"

#include <algorithm>

#include "runtime/compute/profile.h"
#include "runtime/snapshot/check.h"
#include "runtime/snapshot/export.h"
#include "runtime/snapshot/restore.h"
#include "runtime/snapshot/verify_steps.h"

namespace stasis {

namespace {

// Returns the first page whose digest differs. Reads all stored pages, which checks their bytes.
std::optional<uint64_t> first_different_page(const Model &model, const State &stored,
                                             const State &computed, const StoredPages &pages) {
    std::vector<uint16_t> data;
    for (uint64_t index = 0; index < stored.pages[0].size(); ++index) {
        bool equal = true;
        for (size_t group = 0; group < stored.pages.size(); ++group) {
            data.resize(model.pool->shape(static_cast<uint32_t>(group)).elements());
            if (pages.stored(group, index)) {
                const PageInto into{group, index, data.data()};
                pages.read({&into, 1});
            }
            equal &= stored.pages[group][index].digest == computed.pages[group][index].digest;
        }
        if (!equal) {
            return index;
        }
    }
    return std::nullopt;
}

} // namespace

std::optional<Divergence> find_divergence(const std::shared_ptr<Model> &model, const State &stored,
                                          const StoredPages &pages, const VerifyOptions &options,
                                          uint64_t index) {
    const uint64_t end = std::min<uint64_t>((index + 1) * stored.page_positions, stored.log.size());
    TimelineOptions retaining;
    retaining.capacity = end;
    retaining.long_rope = has_long_rope(stored.model, *model);
    retaining.window_retain = stored.page_positions; // so that the whole page is still held
    Timeline timeline(*model, retaining);
    AppendOptions run;
    run.chunk = options.chunk;
    run.watch = options.watch.silent();
    run.schedule = &stored.profile;
    const auto behind = std::find_if(stored.evictions.begin(), stored.evictions.end(),
                                     [&](const auto &each) { return each.position >= end; });
    replay(timeline, std::span(stored.log).first(end),
           Evictions({stored.evictions.begin(), behind}), run);
    return compare_page(timeline, stored, pages, index);
}

VerifyReport verify(const std::shared_ptr<Model> &model, const State &stored,
                    const StoredPages &pages, const VerifyOptions &options) {
    check_comparable(stored, *model);
    check_computable(stored.profile);
    const uint64_t positions = stored.log.size();
    if (positions == 0) {
        return {};
    }
    // Computes the whole log, with the draws and evictions that it records.
    Redraw redraw(stored, *model, options.watch);
    TimelineOptions retaining;
    retaining.window_retain = 0;
    retaining.long_rope = has_long_rope(stored.model, *model);
    Timeline timeline(*model, retaining);
    recompute(timeline, redraw, pages, positions, options, 0, positions);
    evict_due(timeline, stored);
    const State computed = export_state(timeline, settings_of(stored), *model);

    std::optional<Divergence> found;
    if (const auto index = first_different_page(*model, stored, computed, pages)) {
        found = find_divergence(model, stored, pages, options, *index);
    } else {
        found = compare_rest(stored, computed);
    }
    // A token that differs counts before the keys and values that follow from it.
    VerifyReport report;
    report.first = earlier(redraw.first(), found);
    report.positions = positions;
    report.drawn = redraw.drawn();
    report.drawn_otherwise = redraw.drawn_otherwise();
    if (!report.first && stored.digest != computed.digest) {
        fail(Status::corrupt, "the state digest %s is not that of the stored state, %s",
             to_hex(stored.digest).c_str(), to_hex(computed.digest).c_str());
    }
    return report;
}

} // namespace stasis
