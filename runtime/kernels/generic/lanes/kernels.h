// The files of this folder that hold kernels: each enters its own into a table.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_TABLE {

void add_norm(Table &table);        // norm.cpp
void add_rope(Table &table);        // rope.cpp
void add_merge(Table &table);       // attention.cpp
void add_activations(Table &table); // activation.cpp
void add_elementwise(Table &table); // elementwise.cpp
void add_recurrent(Table &table);   // recurrent.cpp
void add_experts(Table &table);     // experts.cpp
void add_draw(Table &table);        // draw.cpp

[[gnu::always_inline]] inline void add_lanes(Table &table) {
    add_norm(table);
    add_rope(table);
    add_merge(table);
    add_activations(table);
    add_elementwise(table);
    add_recurrent(table);
    add_experts(table);
    add_draw(table);
}

} // namespace stasis::kernels::STASIS_TABLE
