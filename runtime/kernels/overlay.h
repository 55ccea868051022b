// The tables of the instruction sets: each takes the table below it and replaces the entries that
// it computes faster; the others stay as they are. Known to table.cpp, which calls only what the
// machine can run: these functions are compiled for their instruction set themselves.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels {

namespace avx2 {
Table overlay(Table table);
}
namespace avx512 {
Table overlay(Table table);
}
namespace avx512vnni {
Table overlay(Table table);
}
namespace avx512bf16 {
Table overlay(Table table);
}
namespace amx {
Table overlay(Table table);
// Asks the kernel, once for the process, to let its threads use tiles. False if it refuses (an old
// kernel, or a host that runs under a filter).
bool request_permission();
} // namespace amx

} // namespace stasis::kernels
