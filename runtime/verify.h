// Recomputes a stored state from its token log and finds the first bit that does not come out.
// Knows states and sessions; where the stored pages lie is the caller's business.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "format/state.h"
#include "format/watch.h"
#include "runtime/model.h"

namespace stasis {

struct VerifyOptions {
    size_t chunk = 0; // as in RunOptions
    Watch watch;      // progress in positions
};

struct VerifyReport {
    bool verified = true;
    uint64_t positions = 0; // recomputed
    // Of the first divergence, where verified is false.
    uint32_t element = 0; // 1 .. 12 of the Big 8 + 4
    uint64_t position = UINT64_MAX;
    uint32_t layer = UINT32_MAX;
    std::string message;
};

// Reads the stored page of a layer group in memory order; false: it was released before the save.
using PageReader = std::function<bool(size_t group, uint64_t index, uint16_t *data)>;

// Computes the whole log in a session of its own and compares page digests, drawn tokens, the final
// hidden state, logits and token texts. Pages whose data are not stored count by their digest.
// Throws Error(model_mismatch), Error(version), what `read_page` throws and what append throws.
VerifyReport verify(const std::shared_ptr<Model> &model, const State &stored,
                    const PageReader &read_page, const VerifyOptions &options);

} // namespace stasis
