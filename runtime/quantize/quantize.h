// Writes a Hugging Face model directory as one GGUF file, its matrices in a type of choice.
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
    bool replace = false; // a GGUF file that is there
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

// Norms, biases and factors of rope become F32. The bytes depend on the model and the type alone.
// The file appears under its name whole or not at all; nothing is left of what could not be
// finished. Throws Error: not_found, io, corrupt, unsupported (type, architecture, tensor, what a
// GGUF file cannot say, a model that is one; named), invalid_argument (`out` is there), nonfinite
// (a weight, or one that is too large for the type; named), cancelled, stopped.
QuantizeReport quantize_model(const std::string &path, const std::string &out,
                              const QuantizeOptions &options);

} // namespace stasis
