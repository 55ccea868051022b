// The probe for AVX512_VNNI: each lane adds four products.
#include "tools/bench/ceilings/probes.h"
#include "tools/bench/ceilings/registers.h"

#define ZERO(n) "vpxorq %%zmm" #n ", %%zmm" #n ", %%zmm" #n "\n\t"
#define STEP(n) "vpdpbusd %%zmm30, %%zmm31, %%zmm" #n "\n\t"

namespace command::ceilings {

double vpdpbusd(uint64_t rounds) {
    const uint32_t a = 0x7B2D5F11, b = 0x11325D3B;
    const double operations = static_cast<double>(rounds) * 24 * 16 * 4 * 2;
    asm volatile("vpbroadcastd %[a], %%zmm30\n\t"
                 "vpbroadcastd %[b], %%zmm31\n\t" STASIS_EACH_24(ZERO)
                     STASIS_LOOP(STASIS_EACH_24(STEP)) "vzeroupper"
                 : [rounds] "+r"(rounds)
                 : [a] "m"(a), [b] "m"(b)
                 : STASIS_EACH_24(STASIS_CLOBBER) "xmm30", "xmm31", "cc");
    return operations;
}

} // namespace command::ceilings
