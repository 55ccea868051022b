// Reads the description of a GGUF file's model; see runtime/model/config.h for its contents.
#pragma once

#include "runtime/model/config.h"
#include "runtime/model/gguf/gguf.h"

namespace stasis {

// Throws Error: corrupt (a key is missing or impossible), unsupported (naming the architecture,
// RoPE scaling, experts, layers of different sizes, or another key that would change results).
Config read_config(const GgufFile &file);

} // namespace stasis
