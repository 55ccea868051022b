// The probe for AVX512_BF16: each lane adds two products.
#include "tools/bench/ceilings/probes.h"
#include "tools/bench/ceilings/registers.h"

#define ZERO(n) "vpxorq %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n\t"
#define STEP(n) "vdpbf16ps %%zmm30, %%zmm31, %%zmm" #n "\n\t"

namespace command::ceilings {

double vdpbf16ps(uint64_t rounds) {
    const uint32_t a = 0x3F993FDA, b = 0x3FDA3F99; // 1.195 and 1.703
    const double operations = static_cast<double>(rounds) * 24 * 16 * 2 * 2;
    asm volatile("vpbroadcastd %[a], %%zmm30\n\t"
                 "vpbroadcastd %[b], %%zmm31\n\t" STASIS_EACH_24(ZERO)
                     STASIS_LOOP(STASIS_EACH_24(STEP)) "vzeroupper"
                 : [rounds] "+r"(rounds)
                 : [a] "m"(a), [b] "m"(b)
                 : STASIS_EACH_24(STASIS_CLOBBER) "xmm30", "xmm31", "cc");
    return operations;
}

} // namespace command::ceilings
