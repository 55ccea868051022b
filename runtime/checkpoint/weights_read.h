// The one pass over the bytes of a model's weights: hashed, checked for non-finite values and,
// where the forward pass wants another type than is stored, converted (private to weights*.cpp).
#pragma once

#include <vector>

#include "format/digest.h"
#include "format/watch.h"
#include "runtime/checkpoint/weights.h"
#include "runtime/checkpoint/weights_plan.h"
#include "runtime/threads.h"

namespace stasis {

// Fills the places of `plan` in `weights` and returns the digest of each tensor: its name without
// prefix, dtype, shape, and the SHA-256 of each MiB as stored. Throws Error(nonfinite) naming the
// first bad value, and what `watch` throws; progress counts bytes.
std::vector<Digest> read_tensors(const std::vector<PlannedTensor> &plan, const Memory &memory,
                                 Threads &threads, const Watch &watch, Weights &weights);

} // namespace stasis
