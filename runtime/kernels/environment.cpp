// Sets the contract's floating-point environment (C2) on processors that have one; see
// environment.h.
#include "runtime/kernels/environment.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace stasis::kernels {

#if defined(__x86_64__)

// MXCSR (Intel SDM, volume 1, 10.2.3): flush to zero (bit 15), all exceptions masked (12-7), round
// to nearest (14-13 clear), denormals are zero (6), no exception flags (5-0).
constexpr uint32_t kContractMxcsr = 0x9FC0;

FloatEnvironment::FloatEnvironment() : saved_(_mm_getcsr()) {
    _mm_setcsr(kContractMxcsr);
}

FloatEnvironment::~FloatEnvironment() {
    _mm_setcsr(saved_);
}

#else

// Standard C sets the rounding mode but no flushing. So denormal inputs and results differ from the
// contract on this processor until its own control register is written.
FloatEnvironment::FloatEnvironment() : saved_(static_cast<uint32_t>(std::fegetround())) {
    std::fesetround(FE_TONEAREST);
}

FloatEnvironment::~FloatEnvironment() {
    std::fesetround(static_cast<int>(saved_));
}

#endif

} // namespace stasis::kernels
