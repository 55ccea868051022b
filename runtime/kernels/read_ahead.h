// Whether kernels that stream through weights prefetch them. Changes the speed and no bit.
#pragma once

namespace stasis::kernels {

// Returns whether this processor reads memory best without prefetches, if the loads of a stream
// ascend: AMD Zen 4, where prefetching by hand cost up to 30 % (tools/BENCHMARKS.md). On others it
// gained as much, or nothing is known.
bool reads_ahead_alone();

} // namespace stasis::kernels
