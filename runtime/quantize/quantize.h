// Writes a Hugging Face model directory as one GGUF file, with its matrices in a chosen type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "format/state/watch.h"
#include "runtime/model/gguf/types.h"

namespace stasis {

struct QuantizeOptions {
    std::string type;     // of mixture_names()
    size_t threads = 0;   // 0: one for each core allowed
    bool replace = false; // replace an existing GGUF file
    Watch watch;          // progress in bytes of weights read
};

struct QuantizedShare {
    GgufType type = GgufType::f32;
    uint64_t tensors = 0, values = 0, bytes = 0;
};

struct QuantizeReport {
    uint64_t source_bytes = 0, file_bytes = 0;
    std::vector<QuantizedShare> shares; // types in use, the largest first
};

// Writes the file. Norms, biases, factors of RoPE, what weighs experts and vectors of recurrent
// layers become F32. The bytes depend on the model and
// the type alone. The file appears under its name whole or not at all; a failed call leaves no
// file. Throws Error: not_found, io, corrupt, unsupported (naming the type, architecture or tensor,
// a property that GGUF cannot express, or a model that is a GGUF file already), invalid_argument
// (`out` exists), nonfinite (naming a weight that is not finite, or too large for the type),
// cancelled, stopped.
QuantizeReport quantize_model(const std::string &path, const std::string &out,
                              const QuantizeOptions &options);

} // namespace stasis
