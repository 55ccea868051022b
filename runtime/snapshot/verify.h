// Recomputes a stored state from its token log, or a random share of it from the stored pages
// before it, and finds the first bit that does not come out.
// Knows states and timelines; where the stored pages lie is the caller's business.
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

// A share of the pages instead of the whole log.
struct AuditOptions : VerifyOptions {
    double percent = 100; // above 0, at most 100
    uint64_t seed = 0; // decides which pages; who fixes it before the file is known proves nothing
};

// A place where what is stored is not what is computed.
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
    uint64_t drawn_otherwise = 0;    // of them, those that came out as another token
    // Of an audit: pages that it drew, out of how many, and the positions that it could not reach.
    uint64_t pages_drawn = 0, pages_reachable = 0;
    uint64_t unreachable_begin = 0, unreachable_end = 0;
};

// Computes the whole log in a timeline of its own and compares page digests, drawn tokens, the
// final hidden state, logits and token texts. Pages that are not stored count by their digest.
// Throws Error(model_mismatch), Error(version), what `pages` throws and what append throws.
VerifyReport verify(const std::shared_ptr<Model> &model, const State &stored,
                    const StoredPages &pages, const VerifyOptions &options);

// Computes a share of the pages, each from the stored keys and values before it, and compares the
// same things there. The first page needs none before it; the last one is always among those
// computed, for the final hidden state and the logits follow from it. Throws as verify does.
VerifyReport audit(const std::shared_ptr<Model> &model, const State &stored,
                   const StoredPages &pages, const AuditOptions &options);

// Computes the log up to the end of page `index`, whose digest is known to differ, and looks where.
// Without a layer if what is stored cannot tell. Of the options, progress has no meaning.
std::optional<Divergence> find_divergence(const std::shared_ptr<Model> &model, const State &stored,
                                          const StoredPages &pages, const VerifyOptions &options,
                                          uint64_t index);

} // namespace stasis
