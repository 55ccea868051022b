// Probes for AVX-512.
#include "tools/bench/ceilings/read_loop.h"
#include "tools/bench/ceilings/registers.h"

#define ZERO(n) "vpxorq %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n\t"
#define STEP(n) "vfmadd231ps %%zmm30, %%zmm31, %%zmm" #n "\n\t"

namespace command::ceilings {

uint64_t read_avx512(const ReadPass &pass) {
    typedef long long Vector __attribute__((vector_size(64), may_alias));
    return read<Vector>(pass);
}

double avx512_fma(uint64_t rounds) {
    const float a = 1.195F, b = 1.703F;
    const double operations = static_cast<double>(rounds) * 24 * 16 * 2;
    asm volatile("vbroadcastss %[a], %%zmm30\n\t"
                 "vbroadcastss %[b], %%zmm31\n\t" STASIS_EACH_24(ZERO)
                     STASIS_LOOP(STASIS_EACH_24(STEP)) "vzeroupper"
                 : [rounds] "+r"(rounds)
                 : [a] "m"(a), [b] "m"(b)
                 : STASIS_EACH_24(STASIS_CLOBBER) "xmm30", "xmm31", "cc");
    return operations;
}

} // namespace command::ceilings
