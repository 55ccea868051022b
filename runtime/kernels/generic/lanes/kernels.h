// The files of this folder that hold kernels: each enters its own into a table.
#pragma once

#include "runtime/kernels/table.h"

namespace stasis::kernels::STASIS_TABLE {

void add_norm(Table &table);        // norm.cpp: rms_norm
void add_rope(Table &table);        // rope.cpp: rope
void add_merge(Table &table);       // attention.cpp: attention_merge, attention_finish
void add_activations(Table &table); // activation.cpp: silu_gate, gelu_gate, softcap
void add_elementwise(Table &table); // elementwise.cpp: add, embed, embed_wide and rounding

[[gnu::always_inline]] inline void add_lanes(Table &table) {
    add_norm(table);
    add_rope(table);
    add_merge(table);
    add_activations(table);
    add_elementwise(table);
}

} // namespace stasis::kernels::STASIS_TABLE
