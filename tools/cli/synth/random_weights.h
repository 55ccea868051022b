// Random weights of bf16 and random bytes, the same on every machine. Must not know files or
// models.
#pragma once

#include <cstdint>

#include "tools/cli/synth/shapes.h"

namespace command::synth {

// Writes elements [begin, begin + count) of the tensor, in row-major order. Each depends on the
// tensor's plan and its own index alone, so that any thread can write any part.
void fill(const TensorPlan &tensor, uint64_t begin, uint64_t count, uint16_t *weights);
void fill(const TensorPlan &tensor, uint64_t begin, uint64_t count, uint8_t *bytes);

} // namespace command::synth
