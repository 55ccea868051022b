// Lanes of the instruction set that this object is compiled for, and the loop over them. All that
// is inline here and below lies in the table's own namespace and is always inlined: the linker must
// never take one instruction set's copy for another.
#pragma once

#include "runtime/kernels/table.h"

#ifdef __AVX512F__
#include "runtime/kernels/avx512/lanes.h"
#else
#include "runtime/kernels/avx2/lanes.h"
#endif

namespace stasis::kernels::STASIS_TABLE {

inline constexpr size_t kLanes = 16;

// step(i, count) for i = 0, 16, ...: 16 elements, and at the end those that are left. A step should
// be marked STASIS_STEP, so that its 16 are a constant.
#define STASIS_STEP __attribute__((always_inline))
template <typename Step> [[gnu::always_inline]] inline void by_lanes(size_t n, const Step &step) {
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
        step(i, kLanes);
    }
    if (i < n) {
        step(i, n - i);
    }
}

// Rounds to bf16 by C6.
[[gnu::always_inline]] inline void store_bf16(Lanes x, uint16_t *y, size_t count = kLanes) {
    store_upper_halves(rounded_to_bf16(x), y, count);
}

} // namespace stasis::kernels::STASIS_TABLE
