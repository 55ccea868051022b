// The description of a GGUF file's model; see runtime/model/config.h for what it says.
#pragma once

#include "runtime/model/config.h"
#include "runtime/model/gguf/gguf.h"

namespace stasis {

// Throws Error: corrupt (a key is missing or impossible), unsupported (architecture, rope scaling,
// experts, layers of different sizes, whatever else would change results: named).
Config read_config(const GgufFile &file);

} // namespace stasis
