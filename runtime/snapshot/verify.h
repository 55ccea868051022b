// Computes a stored state again from its token log, or a random share of it from the stored pages
// before it, and finds the first bit that differs. Knows states and timelines; the caller provides
// the stored pages.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "format/state/state.h"
#include "format/state/watch.h"
#include "runtime/kv/stored_pages.h"
#include "runtime/session/model.h"

namespace stasis {

struct VerifyOptions {
    size_t chunk = 0; // as in AppendOptions
    Watch watch;      // progress in positions
};

// Options for a share of the pages instead of the whole log.
struct AuditOptions : VerifyOptions {
    double percent = 100; // above 0, at most 100
    // Determines the pages drawn. An audit proves something only if the seed is chosen after the
    // file is fixed.
    uint64_t seed = 0;
};

// The first bit at which the stored and the computed state differ.
struct Divergence {
    static constexpr uint32_t kNowhere = UINT32_MAX;

    uint32_t element = 0; // 1 .. 12 of the Big 8 + 4
    uint64_t position = UINT64_MAX;
    uint32_t layer = kNowhere;
    uint32_t head = kNowhere; // KV head
    uint32_t part = kNowhere; // 0 keys, 1 values
    std::string message;
};

struct VerifyReport {
    std::optional<Divergence> first; // none: every bit that was compared is the same
    uint64_t positions = 0;          // recomputed
    uint64_t drawn = 0;              // tokens drawn again
    uint64_t drawn_otherwise = 0;    // tokens that the second draw gave differently
    // For an audit: the pages drawn, the pages that could be drawn, and the positions that it could
    // not reach.
    uint64_t pages_drawn = 0, pages_reachable = 0;
    uint64_t unreachable_begin = 0, unreachable_end = 0;
};

// Computes the whole log in a timeline of its own, and compares page digests, drawn tokens, the
// final hidden state, logits and token texts. A page that is not stored is compared by its digest.
// Throws Error(model_mismatch), Error(version), and the errors of `pages` and of append.
VerifyReport verify(const std::shared_ptr<Model> &model, const State &stored,
                    const StoredPages &pages, const VerifyOptions &options);

// Computes a share of the pages, each from the stored keys and values before it, and compares the
// same values as verify does. The first page needs no earlier one. The last page is always
// computed, because the final hidden state and the logits follow from it. Throws as verify does.
VerifyReport audit(const std::shared_ptr<Model> &model, const State &stored,
                   const StoredPages &pages, const AuditOptions &options);

// Computes the log up to the end of page `index`, whose digest differs, and returns the first
// difference. It has no layer if the stored data does not show one. Ignores the progress function
// of `options`.
std::optional<Divergence> find_divergence(const std::shared_ptr<Model> &model, const State &stored,
                                          const StoredPages &pages, const VerifyOptions &options,
                                          uint64_t index);

} // namespace stasis
