// The two builds of the reference kernels, equal bit for bit; which one runs is only a matter of
// speed. Known to table.cpp, math.cpp and the tests, to nobody else.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels {

struct Reference {
    Table table;
    float (*exp)(float x); // math.h
    float (*tanh)(float x);
    float (*sigmoid)(float x);
};

namespace portable {
const Reference &reference();
}
namespace with_fma { // defined where the compiler can target it (CMakeLists.txt)
const Reference &reference();
}

// The build with FMA instructions, null where the build or this machine has none.
const Reference *reference_with_fma();
// The faster one of those that this machine runs.
const Reference &best_reference();

} // namespace stasis::kernels
