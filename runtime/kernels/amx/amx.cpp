// Fills the table of this instruction set.
#include "runtime/kernels/overlay.h"

namespace stasis::kernels::amx {

Table overlay(Table table) {
    table.name = "amx";
    return table;
}

} // namespace stasis::kernels::amx
