// Whether the processor has tiles, and the permission that Linux wants to be asked for before a
// process uses them (Documentation/arch/x86/xstate.rst in its sources).
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/kernels/amx/kernels.h"

namespace stasis::kernels::amx {

namespace {

// CPUID leaf 7 (Intel SDM, volume 2): EDX bit 22 AMX-BF16, bit 24 AMX-TILE, bit 25 AMX-INT8.
bool processor_has_tiles() {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 22 & 1U) != 0 &&
           (edx >> 24 & 1U) != 0 && (edx >> 25 & 1U) != 0;
}

// Determines whether the operating system saves the tiles and lets this process use them: a kernel
// without support for tiles, or a host that filters the call, refuses it.
bool request_permission() {
    constexpr long kRequestPermission = 0x1023; // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;              // the state component of the tiles
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

} // namespace

bool has_tiles() {
    return processor_has_tiles() && request_permission();
}

} // namespace stasis::kernels::amx
