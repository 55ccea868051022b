// Codes matrices of bf16 weights (runtime/kernels/coded.h), once, when a model is opened. Included
// by weights_read.cpp, weights_strips.cpp and weights_coded.cpp only.
#pragma once

#include <vector>

#include "runtime/host/threads.h"
#include "runtime/model/weights.h"
#include "runtime/model/weights_plan.h"
#include "runtime/model/weights_read.h"

namespace stasis {

// Reports whether a tensor that was found can be coded.
bool can_be_coded(const PlannedTensor &planned);

// Returns the bytes of the blocks of such a matrix.
size_t coded_bytes(const PlannedTensor &planned);

// Codes one matrix from its tensor; does nothing for other tensors. A matrix with a strip of too
// many escapes is kept as it is stored instead. Throws the errors of the watch.
void code_matrix(const PlannedTensor &planned, const WeightsPlace &place, Threads &threads,
                 Progress &progress, Weights &weights);

} // namespace stasis
