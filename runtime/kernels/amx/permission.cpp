// The permission that Linux wants to be asked for before a process uses tiles
// (Documentation/arch/x86/xstate.rst in its sources).
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/kernels/amx/kernels.h"

namespace stasis::kernels::amx {

bool request_permission() {
    constexpr long kRequestPermission = 0x1023; // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;              // the state component of the tiles
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

} // namespace stasis::kernels::amx
