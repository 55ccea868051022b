// Reorders matrices of integer weights from the file's order to the kernels'
// (runtime/kernels/strips.h), once, when a model is opened. Included by weights_read.cpp,
// weights_strips.cpp and weights_coded.cpp only.
#pragma once

#include <functional>
#include <vector>

#include "runtime/host/threads.h"
#include "runtime/model/weights.h"
#include "runtime/model/weights_plan.h"
#include "runtime/model/weights_read.h"

namespace stasis {

// Returns the bytes of all strips of a plan whose tensors were found; `code`: of those that can be
// coded too.
uint64_t strips_size_bytes(const std::vector<PlannedTensor> &plan, bool code);

// Reserves memory for the strips of the plan's matrices of integer weights, whose `quant` is set,
// and if the place codes weights, of those that can be coded. It is one piece, so that huge pages
// fill it, in the plan's order, which is nearly the order of multiplication. Returns its size in
// bytes.
uint64_t place_strips(std::vector<PlannedTensor> &plan, const WeightsPlace &place,
                      Weights &weights);

// Calls work(strip, thread) for every strip of a matrix, of so many bytes each, split over threads.
// Throws what it throws, and the errors of the watch.
void each_strip(size_t count, size_t strip_bytes, Threads &threads, Progress &progress,
                const std::function<void(size_t strip, size_t thread)> &work);

// Fills the strips of one matrix from its tensor; does nothing for other tensors. Throws the errors
// of the watch.
void make_strips(const PlannedTensor &planned, Threads &threads, Progress &progress);

} // namespace stasis
