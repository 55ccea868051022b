// Sizes and names of metadata value types. Included by parse.cpp and values.cpp only.
#pragma once

#include "runtime/model/gguf/gguf.h"

namespace stasis {

// Returns the bytes of a value of a fixed size; 0: strings and arrays.
size_t gguf_value_size(GgufValueType type);

const char *gguf_value_name(GgufValueType type);

} // namespace stasis
