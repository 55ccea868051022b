// Converts the description that forward.cpp reads to the metadata of a GGUF file; config.cpp reads
// it back.
#pragma once

#include <vector>

#include "runtime/model/config.h"
#include "runtime/model/gguf/writer.h"

namespace stasis {

// Throws Error(unsupported) naming a property that GGUF cannot express.
void describe_config(const Config &config, GgufMetadata &metadata);

// Divisors of RoPE frequencies, [rotary / 2], and the name of their tensor.
struct GgufFactors {
    const char *tensor;
    std::vector<float> values;
};

// Returns those that GGUF needs; empty if it needs none.
std::vector<GgufFactors> rope_factors(const Config &config);

// Throws Error(unsupported) naming the first part that differs, unless the description read back
// from a file equals the original (except that norms include their one, and RoPE has factors
// instead of a rule).
void check_described(const Config &meant, const Config &read);

} // namespace stasis
