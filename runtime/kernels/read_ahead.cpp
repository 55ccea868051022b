// See read_ahead.h. Tells processors apart by CPUID (AMD64 Architecture Programmer's Manual, volume
// 3, appendix E; Intel SDM, volume 2, CPUID).
#include "runtime/kernels/read_ahead.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace stasis::kernels {

ReadAhead read_ahead() {
#if defined(__x86_64__)
    static const ReadAhead found = [] {
        unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
        if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) {
            return ReadAhead::far_and_near;
        }
        if (ebx == signature_INTEL_ebx && ecx == signature_INTEL_ecx &&
            edx == signature_INTEL_edx) {
            return ReadAhead::near;
        }
        if (ebx != signature_AMD_ebx || ecx != signature_AMD_ecx || edx != signature_AMD_edx ||
            __get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) {
            return ReadAhead::far_and_near;
        }
        const unsigned family = (eax >> 8 & 15U) + (eax >> 20 & 255U);
        // Zen 3 is of the same family, and has no AVX-512.
        const bool zen4 = family == 25 && __builtin_cpu_supports("avx512f") != 0;
        return zen4 ? ReadAhead::alone : ReadAhead::far_and_near;
    }();
    return found;
#else
    return ReadAhead::far_and_near;
#endif
}

} // namespace stasis::kernels
