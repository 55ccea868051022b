// What one row's block gives the positions of the attention of a query head (NUMERICS.md, C10):
// text that the host and devices share, as exp_f64.h.
#pragma once

#include "runtime/kernels/exp_f64.h"
#include "runtime/kernels/received.h"

namespace stasis::kernels {

namespace {

// The block's, with its maximum m_b; m and l are what all of the row's blocks merged to.
STASIS_FUNCTION double share_of(float m_b, float m, float l) {
    return exp_whole(double{m_b} - double{m}) / double{l};
}

// A slot's, of weight p; 0 where a number is not finite.
STASIS_FUNCTION uint64_t received_of(float p, double share) {
    const double weight = double{p} * share * kReceivedOne;
    return weight >= 1.0 && weight <= kReceivedOne ? static_cast<uint64_t>(weight) : 0; // not NaN
}

} // namespace

} // namespace stasis::kernels
