// Steps of recurrent layers (C11) on the CPU; see runtime/compute/backend.h.
#pragma once

#include <cstddef>

#include "runtime/compute/pass.h"

namespace stasis {

// Products of the normed stream: inputs of the convolution, z, a and b; or B, C and x; or z, x, B,
// C and dt.
void project_recurrent(Pass &pass, size_t layer);
// Convolution, delta rule or scan, and gated norm of every sequence, or the short convolution;
// leaves its next state, and the inputs of the output's product in `narrow`.
void recur(Pass &pass, size_t layer);

// Makes a pass of one sequence keep the products that `recur` reads. Throws Error(no_memory).
void keep_inputs(Pass &pass);
// Computes the next state after the first rows of that pass.
void recur_again(Pass &pass, size_t rows);

} // namespace stasis
