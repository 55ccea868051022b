// Codes matrices of bf16 weights (runtime/kernels/coded.h), once, when a model is opened. Included
// by weights_read.cpp and weights_coded.cpp only.
#pragma once

#include <vector>

#include "runtime/host/threads.h"
#include "runtime/model/weights.h"
#include "runtime/model/weights_plan.h"
#include "runtime/model/weights_read.h"

namespace stasis {

// Reports whether a tensor that was found can be coded.
bool can_be_coded(const PlannedTensor &planned);

// Returns the bytes of all blocks of a plan whose tensors were found.
uint64_t coded_size_bytes(const std::vector<PlannedTensor> &plan);

// Reserves memory for the blocks of the plan's matrices that can be coded, in one piece, as
// place_strips. Returns its size in bytes.
uint64_t place_coded(std::vector<PlannedTensor> &plan, const Memory &memory, Weights &weights);

// Codes one matrix from its tensor; does nothing for other tensors. A matrix with a strip of too
// many escapes is kept as it is stored instead. Throws the errors of the watch.
void code_matrix(const PlannedTensor &planned, const WeightsPlace &place, Threads &threads,
                 Progress &progress, Weights &weights);

} // namespace stasis
