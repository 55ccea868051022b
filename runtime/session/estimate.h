// What a model takes of memory, from the headers of its files: nothing is read of its weights.
#pragma once

#include <string>

#include "runtime/model/config.h"
#include "runtime/model/weights.h"
#include "runtime/session/model.h"
#include "runtime/timeline/footprint.h"

namespace stasis {

struct ModelEstimate {
    Config config;
    WeightSizes weights;
    uint64_t file_bytes = 0;      // of all files of weights
    uint64_t workspace_bytes = 0; // of a pass of the default chunk
    Footprint session;
};

// Estimates a model and a session of `positions`. Reads neither tokenizer nor template. Throws as
// open_model, for what can be seen without reading weights; Error(unsupported) for devices; and as
// Timeline and footprint.
ModelEstimate estimate_model(const std::string &path, const ModelOptions &options,
                             const TimelineOptions &session, uint64_t positions);

} // namespace stasis
