// Sampling settings as snapshots name them in JSON, read back into the library's struct.
#pragma once

#include <vector>

#include "tools/cli/terminal.h"

namespace command {

struct StoredSampling {
    stasis_sampling sampling{}; // but for what the lists below hold
    std::vector<stasis_token> bias_tokens, dry_breakers;
    std::vector<float> bias;

    // Sets them. Throws Failure.
    void apply(stasis_session *session) const;
};

// `json` is one of the samplings of element 6 of a snapshot.
StoredSampling read_sampling(const Json &json);

// Returns settings with lists of their own.
StoredSampling copy_sampling(const stasis_sampling &sampling);

} // namespace command
