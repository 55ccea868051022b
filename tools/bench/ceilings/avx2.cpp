// Probes for AVX2 with FMA: twelve sums hide the latency of every machine there is.
#include "tools/bench/ceilings/read_loop.h"
#include "tools/bench/ceilings/registers.h"

#define ZERO(n) "vpxor %%ymm" #n ", %%ymm" #n ", %%ymm" #n "\n\t"
#define STEP(n) "vfmadd231ps %%ymm14, %%ymm15, %%ymm" #n "\n\t"

namespace command::ceilings {

uint64_t read_avx2(const ReadPass &pass) {
    typedef long long Vector __attribute__((vector_size(32), may_alias));
    return read<Vector>(pass);
}

double avx2_fma(uint64_t rounds) {
    const float a = 1.195F, b = 1.703F;
    const double operations = static_cast<double>(rounds) * 12 * 8 * 2;
    asm volatile("vbroadcastss %[a], %%ymm14\n\t"
                 "vbroadcastss %[b], %%ymm15\n\t" STASIS_EACH_12(ZERO)
                     STASIS_LOOP(STASIS_EACH_12(STEP)) "vzeroupper"
                 : [rounds] "+r"(rounds)
                 : [a] "m"(a), [b] "m"(b)
                 : STASIS_EACH_12(STASIS_CLOBBER) "xmm14", "xmm15", "cc");
    return operations;
}

} // namespace command::ceilings
