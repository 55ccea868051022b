// AMX on processors with AVX-512 that have no tiles.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::test {

// Returns the table of AMX over emulated tiles; null if this machine or this build lacks what its
// kernels need besides. Another thread may use it at the same time.
const kernels::Table *emulated_amx();

} // namespace stasis::test
