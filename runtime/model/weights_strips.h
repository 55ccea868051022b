// Matrices of integer weights from the order of the file to that of the kernels
// (runtime/kernels/strips.h), once, when a model is opened (private to weights*.cpp).
#pragma once

#include <vector>

#include "runtime/host/threads.h"
#include "runtime/model/weights.h"
#include "runtime/model/weights_plan.h"
#include "runtime/model/weights_read.h"

namespace stasis {

// Gives the plan's matrices of integer weights, whose `quant` is set, memory for their strips: one
// piece, so that huge pages fill it, in the plan's order, which is nearly that of multiplying.
// Returns its size in bytes.
uint64_t place_strips(std::vector<PlannedTensor> &plan, const Memory &memory, Weights &weights);

// Fills one of them from its tensor; does nothing for other tensors. Throws what the watch throws.
void make_strips(const PlannedTensor &planned, Threads &threads, Progress &progress);

} // namespace stasis
