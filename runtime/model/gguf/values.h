// Types of metadata values: their sizes and names. Inside this folder only.
#pragma once

#include "runtime/model/gguf/gguf.h"

namespace stasis {

// Bytes of a value of a fixed size; 0: strings and arrays.
size_t gguf_value_size(GgufValueType type);

const char *gguf_value_name(GgufValueType type);

} // namespace stasis
