// How large a model's matrices are, from the headers of its weights: the interface does not say,
// and what a token costs follows from it. Knows safetensors' headers, reads no weight.
#pragma once

#include <cstdint>
#include <string>

namespace command::bench {

struct Matrices {
    uint64_t layers = 0;     // elements of the matrices in the layers of the text model
    uint64_t all = 0;        // of these and the embeddings, and the head if it is stored
    uint64_t file_bytes = 0; // of all tensors
};

// Of the model in `directory`, which the library has opened: its files are sound. Throws Failure.
Matrices measure_matrices(const std::string &directory);

} // namespace command::bench
