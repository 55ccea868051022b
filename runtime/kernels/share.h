// The attention that one row's block gives to positions for a query head (NUMERICS.md, C10), in
// source that the host and devices share, as exp_f64.h is.
#pragma once

#include "runtime/kernels/exp_f64.h"
#include "runtime/kernels/received.h"

namespace stasis::kernels {

namespace {

// Returns the share of a block with maximum m_b; m and l are the results of merging all of the
// row's blocks.
STASIS_FUNCTION double share_of(float m_b, float m, float l) {
    return exp_whole(double{m_b} - double{m}) / double{l};
}

// Returns the share of a slot of weight p; 0 if a number is not finite.
STASIS_FUNCTION uint64_t received_of(float p, double share) {
    const double weight = double{p} * share * kReceivedOne;
    // The comparisons are false for NaN.
    return weight >= 1.0 && weight <= kReceivedOne ? static_cast<uint64_t>(weight) : 0;
}

} // namespace

} // namespace stasis::kernels
