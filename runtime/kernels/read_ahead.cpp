// See read_ahead.h. Tells processors apart by CPUID (AMD64 Architecture Programmer's Manual, volume
// 3, appendix E).
#include "runtime/kernels/read_ahead.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace stasis::kernels {

bool reads_ahead_alone() {
#if defined(__x86_64__)
    static const bool alone = [] {
        unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
        if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0 || ebx != signature_AMD_ebx ||
            ecx != signature_AMD_ecx || edx != signature_AMD_edx ||
            __get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) {
            return false;
        }
        const unsigned family = (eax >> 8 & 15U) + (eax >> 20 & 255U);
        // Zen 3 is of the same family, and has no AVX-512.
        return family == 25 && __builtin_cpu_supports("avx512f") != 0;
    }();
    return alone;
#else
    return false;
#endif
}

} // namespace stasis::kernels
