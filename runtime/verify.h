// Recomputes a stored state from its token log and finds the first bit that does not come out.
// Knows states and sessions; where the stored pages lie is the caller's business.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "format/state.h"
#include "format/watch.h"
#include "runtime/model.h"
#include "runtime/stored_pages.h"

namespace stasis {

struct VerifyOptions {
    size_t chunk = 0; // as in RunOptions
    Watch watch;      // progress in positions
};

struct VerifyReport {
    static constexpr uint32_t kNoLayer = UINT32_MAX;

    bool verified = true;
    uint64_t positions = 0; // recomputed
    // Of the first divergence, where verified is false.
    uint32_t element = 0; // 1 .. 12 of the Big 8 + 4
    uint64_t position = UINT64_MAX;
    uint32_t layer = kNoLayer;
    std::string message;
};

// Computes the whole log in a session of its own and compares page digests, drawn tokens, the final
// hidden state, logits and token texts. Pages whose data are not stored count by their digest.
// Throws Error(model_mismatch), Error(version), what `pages` throws and what append throws.
VerifyReport verify(const std::shared_ptr<Model> &model, const State &stored,
                    const StoredPages &pages, const VerifyOptions &options);

struct Place {
    uint64_t position = 0;
    uint32_t layer = 0;
};

// Computes the log up to the end of page `index` and looks where the page differs from what is
// stored of it in any group: smallest position first, then smallest layer. Nothing if that cannot
// be told. Of the options, progress has no meaning.
std::optional<Place> find_divergence(const std::shared_ptr<Model> &model, const State &stored,
                                     const StoredPages &pages, const VerifyOptions &options,
                                     uint64_t index);

} // namespace stasis
