// Which prefetches help kernels that stream through weights, as measured on each processor
// (tools/benchmarks/amd.md). Changes the speed and no bit.
#pragma once

namespace stasis::kernels {

enum class ReadAhead {
    alone, // none for one row: the processor reads ahead best by itself, if the loads ascend.
           // AMD Zen 4, where prefetching by hand cost up to 30 %
    near,  // into the first level of caches. Intel with AMX
    far_and_near, // into the second level, then the first. AMD Zen 5; others were not measured
};

// Returns what helps this processor.
ReadAhead read_ahead();

} // namespace stasis::kernels
