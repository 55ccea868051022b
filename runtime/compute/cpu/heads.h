// Queries, keys and values of a layer on the CPU, between their products and attention.
#pragma once

#include <cstddef>

#include "runtime/compute/pass.h"

namespace stasis {

// Backend::finish_heads: the scratch's `query`, `key` and `value` to its `query_bf16` and to the
// pages.
void finish_heads(Pass &pass, size_t layer);

} // namespace stasis
