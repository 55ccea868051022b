// The two builds of the reference kernels, equal bit for bit; the choice affects only speed.
// Included by table.cpp, math.cpp and the tests only.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels {

struct Reference {
    Table table;
    float (*exp)(float x); // math.h
    float (*tanh)(float x);
    float (*sigmoid)(float x);
    float (*softplus)(float x);
};

namespace portable {
const Reference &reference();
}
namespace with_fma { // defined where the compiler can target it (CMakeLists.txt)
const Reference &reference();
}

// Returns the build with FMA instructions; null if the build or this machine has none.
const Reference *reference_with_fma();
// Returns the faster build that this machine runs.
const Reference &best_reference();

} // namespace stasis::kernels
