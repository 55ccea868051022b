// The pass over the bytes of a model's weights: hashes them, checks for non-finite values, and
// converts them if the forward pass reads another type or order than is stored. Included by
// weights.cpp, weights_read.cpp and weights_strips.h only.
#pragma once

#include <optional>
#include <vector>

#include "format/state/digest.h"
#include "format/state/watch.h"
#include "runtime/host/threads.h"
#include "runtime/model/weights.h"
#include "runtime/model/weights_plan.h"

namespace stasis {

// The part of the pass that is done, reported to `watch`.
struct Progress {
    const Watch &watch;
    uint64_t total_bytes;
    uint64_t done_bytes = 0;

    void step() const { watch.step(done_bytes, total_bytes); }
};

// Bytes between two reports to `watch`: some 30 ms a core.
inline constexpr uint64_t kBatchBytes = 64U << 20;

// Adds the memory that read_tensors takes for a plan whose tensors were found, and what it maps if
// it may. Throws Error(unsupported) as read_tensors does.
void measure_tensors(const std::vector<PlannedTensor> &plan, bool map, bool code,
                     const Weights &weights, WeightSizes &sizes);

// Fills the places of `plan` in `weights`, and `digests` unless it has those of an earlier pass,
// with which nothing is read that stays where it is mapped. Returns false if those are not the
// digests of what was read. The digest of a tensor is of its name without prefix, dtype, shape, and
// the SHA-256 of each MiB as stored. Throws Error(nonfinite) naming the first bad value, and the
// errors of `watch`; progress counts the bytes that are read, including those of strips.
bool read_tensors(std::vector<PlannedTensor> &plan, const WeightsPlace &place,
                  std::optional<std::vector<Digest>> &digests, Threads &threads, const Watch &watch,
                  Weights &weights);

} // namespace stasis
