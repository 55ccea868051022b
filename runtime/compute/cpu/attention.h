// Attention over pages on the CPU (C5).
#pragma once

#include <cstddef>

#include "runtime/compute/pass.h"

namespace stasis {

// Attention of one layer over the pages of each sequence: the scratch's query_bf16 of all rows to
// its `narrow` [rows][heads * head_dim]. Expects plan_attention.
void attend(Pass &pass, size_t layer);

} // namespace stasis
