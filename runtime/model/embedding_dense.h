// Dense layers after pooling, of sentence-transformers' models: y = W x + b on a text's vector.
// Knows no arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/gguf/gguf.h"
#include "runtime/model/model_folder.h"

namespace stasis {

struct EmbeddingDense {
    uint32_t inputs = 0, outputs = 0;
    std::vector<float> weights; // [inputs][outputs], transposed from the file's [outputs][inputs]
    std::vector<float> bias;    // [outputs], or empty

    // Returns the weights as files have them, [outputs][inputs].
    std::vector<float> rows() const;
};

// Reads such a layer from PLACE/config.json and PLACE/model.safetensors (sentence-transformers,
// models/Dense.py), whose weights may be F32, BF16 or F16. `inputs` are the numbers that the layer
// must take. Throws Error: unsupported (an activation, no safetensors), corrupt, io.
EmbeddingDense read_embedding_dense(const ModelFolder &folder, const std::string &place,
                                    uint32_t inputs);

// The names of such layers' weights in GGUF files, in order, as llama.cpp has them
// (src/llama-arch.cpp); they have no biases.
inline constexpr const char *kGgufDense[] = {"dense_2", "dense_3"};

// Reads the layer of that name (NAME.weight, F32, BF16 or F16) from a GGUF file that has it. Throws
// Error: unsupported (another type), corrupt, io.
EmbeddingDense read_embedding_dense(const GgufFile &file, const std::string &name, uint32_t inputs);

} // namespace stasis
