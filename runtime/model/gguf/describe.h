// The description that forward.cpp reads as the metadata of a GGUF file; config.cpp reads it back.
#pragma once

#include <vector>

#include "runtime/model/config.h"
#include "runtime/model/gguf/writer.h"

namespace stasis {

// Throws Error(unsupported) naming what GGUF has no word for.
void describe_config(const Config &config, GgufMetadata &metadata);

// By what GGUF divides the frequencies of rope: [head_dim / 2], empty where it needs none.
std::vector<float> rope_factors(const Config &config);

// Throws Error(unsupported), naming the first part that differs, unless what was read back from a
// file is what was meant (norms have their one added, rope its factors instead of a rule).
void check_described(const Config &meant, const Config &read);

} // namespace stasis
