// How large a model's matrices are, from the headers of its weights: the interface does not say,
// and what a token costs follows from it. Knows files' headers, reads no weight.
#pragma once

#include <cstdint>
#include <string>

namespace command::bench {

struct Matrices {
    uint64_t layers = 0;      // elements of the matrices in the layers of the text model
    uint64_t token_bytes = 0; // of these and the head, as a product reads them
    uint64_t copied = 0;      // bytes of those that are not multiplied where the file is mapped:
                              // f16 and f32, converted to bf16, and integers
    uint64_t file_bytes = 0;  // of all tensors
};

// Of the model in `path`, a directory or a GGUF file, which the library has opened: its files are
// sound. `head` is the number of elements in the output head. Throws Failure.
Matrices measure_matrices(const std::string &path, uint64_t head);

} // namespace command::bench
