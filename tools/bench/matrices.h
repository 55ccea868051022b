// How large a model's matrices are, from the headers of its weights and its config: the interface
// does not say, and what a token costs follows from it. Of experts a token takes the chosen. Knows
// files' headers, reads no weight.
#pragma once

#include <cstdint>
#include <string>

namespace command::bench {

struct Matrices {
    uint64_t layers = 0;       // elements of the matrices in the layers of the text model
    uint64_t token_bytes = 0;  // of these and the head, as a product reads them
    uint64_t expert_bytes = 0; // of all experts, of which those of a token are in token_bytes
    uint64_t experts = 0, chosen = 0;               // of a layer; 0: none has any
    uint64_t recurrent_layers = 0, state_bytes = 0; // states of all layers of one session
    uint64_t copied = 0;     // bytes of those that are not multiplied where the file is mapped:
                             // f16 and f32, converted to bf16, and integers
    uint64_t file_bytes = 0; // of all tensors

    // Bytes that a step of so many tokens reads: experts that several have chosen are read once,
    // and each chooses as if at random.
    double step_bytes(uint64_t tokens) const;
};

// Of the model in `path`, a directory or a GGUF file, which the library has opened: its files are
// sound. `head` is the number of elements in the output head; `coded`: those of bf16 are read in 12
// bits. Throws Failure.
Matrices measure_matrices(const std::string &path, uint64_t head, bool coded);

} // namespace command::bench
