// The CPU's step for mixtures of experts (Backend::run_experts; NUMERICS.md, C12).
#pragma once

#include <cstddef>

#include "runtime/compute/pass.h"

namespace stasis {

// Routes the rows, whose normed stream is in the scratch's `narrow`, computes their experts, and
// stores the weighted sums in `wide` [T][H]. Marks the rows with a router's logit that is not
// finite as bad.
void run_experts(Pass &pass, size_t layer);

} // namespace stasis
