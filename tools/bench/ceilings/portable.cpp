// Probes for any x86-64, of which SSE2 is a part.
#include "tools/bench/ceilings/read_loop.h"
#include "tools/bench/ceilings/registers.h"

#define ZERO(n) "xorps %%xmm" #n ", %%xmm" #n "\n\t"
#define STEP(n) "mulss %%xmm14, %%xmm" #n "\n\t addss %%xmm15, %%xmm" #n "\n\t"

namespace command::ceilings {

uint64_t read_portable(const ReadPass &pass) {
    typedef long long Vector __attribute__((vector_size(16), may_alias));
    return read<Vector>(pass);
}

double scalar_multiply_add(uint64_t rounds) {
    const float factor = 0.99993F, term = 1.00007F;
    const double operations = static_cast<double>(rounds) * 12 * 2;
    asm volatile("movss %[factor], %%xmm14\n\t"
                 "movss %[term], %%xmm15\n\t" STASIS_EACH_12(ZERO) STASIS_LOOP(STASIS_EACH_12(STEP))
                 : [rounds] "+r"(rounds)
                 : [factor] "m"(factor), [term] "m"(term)
                 : STASIS_EACH_12(STASIS_CLOBBER) "xmm14", "xmm15", "cc");
    return operations;
}

} // namespace command::ceilings
