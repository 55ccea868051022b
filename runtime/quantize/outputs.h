// Plans the tensors of a GGUF file: their names, types and shapes, and which of the checkpoint's
// they are made of. Knows no values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/model/config.h"
#include "runtime/model/embedding_dense.h"
#include "runtime/model/gguf/describe.h"
#include "runtime/model/gguf/writer.h"
#include "runtime/model/weights_plan.h"
#include "runtime/quantize/encoder.h"
#include "runtime/quantize/mixture.h"

namespace stasis {

// A tensor of the file, and the tensors whose rows follow each other in it.
struct QuantizedTensor {
    struct Part {
        EncodedSource source;
        uint64_t rows = 0;
    };
    GgufEntry entry;
    uint64_t columns = 0;
    std::vector<Part> parts = {};
};

// Returns the file's tensors in the order of the plan, whose tensors are found. `rope_factors` and
// `dense`, whose values are [outputs][inputs], are tensors of their own, the first. Throws
// Error(unsupported) naming a tensor that GGUF files have no name for.
std::vector<QuantizedTensor> plan_outputs(const Config &config, const Mixture &mixture,
                                          std::span<const PlannedTensor> planned,
                                          std::span<const GgufFactors> rope_factors,
                                          std::span<const EmbeddingDense> dense);

} // namespace stasis
