// Random bf16 weights, the same on every machine. Knows no file and no model.
#pragma once

#include <cstdint>

#include "tools/cli/synth/shapes.h"

namespace command::synth {

// Elements [begin, begin + count) of the tensor, in row-major order. Each depends on the tensor's
// plan and its own index alone, so that any thread may write any part.
void fill(const TensorPlan &tensor, uint64_t begin, uint64_t count, uint16_t *weights);

} // namespace command::synth
