// The block rule (C1) for several outputs side by side. Their sums are independent, so the number
// computed together affects only speed.
#pragma once

#include "runtime/kernels/reference/arithmetic.h"

namespace stasis::kernels::STASIS_REFERENCE {

inline constexpr size_t kBlock = 32; // terms in a block of the rule
inline constexpr size_t kLanes = 32; // outputs side by side; any number gives the same bits

// sum[n] = e + o of one block, for each output n.
inline void block_rule(const float (&a)[kBlock], const float (&b)[kBlock][kLanes],
                       float (&sum)[kLanes]) {
    float even[kLanes] = {};
    float odd[kLanes] = {};
    for (size_t k = 0; k < kBlock; k += 2) {
        for (size_t n = 0; n < kLanes; ++n) {
            even[n] = fma(a[k], b[k][n], even[n]);
        }
        for (size_t n = 0; n < kLanes; ++n) {
            odd[n] = fma(a[k + 1], b[k + 1][n], odd[n]);
        }
    }
    for (size_t n = 0; n < kLanes; ++n) {
        sum[n] = even[n] + odd[n];
    }
}

} // namespace stasis::kernels::STASIS_REFERENCE
