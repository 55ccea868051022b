// The file of a table's own folder that holds products with coded weights enters them.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_TABLE {

void add_coded(Table &table); // coded.cpp

} // namespace stasis::kernels::STASIS_TABLE
