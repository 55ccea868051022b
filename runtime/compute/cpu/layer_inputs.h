// The CPU's steps for layers that get numbers of their own for each token (NUMERICS.md, C6).
#pragma once

#include <cstddef>

#include "runtime/compute/pass.h"

namespace stasis {

// Computes the inputs of all layers, from the tokens and the embeddings in the stream.
void make_inputs(Pass &pass);

// Backend::apply_inputs: from the rounded stream in the scratch's `narrow` to `wide` [T][H].
void apply_inputs(Pass &pass, size_t layer);

} // namespace stasis
