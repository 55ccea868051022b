// Types for the matrices of a model, by the common names of mixtures. Knows no values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/model/gguf/types.h"

namespace stasis {

struct Mixture {
    const char *name;
    uint32_t file_type; // general.file_type (ggml's docs/gguf.md)
    GgufType usual;
    GgufType head;          // of the output head, or of embeddings that are the head
    bool more;              // attn_v and ffn_down of half of the layers as Q6_K
    GgufType fused = usual; // attn_qkv
};

// Returns a mixture by its name. Throws Error(unsupported) listing all names.
const Mixture &find_mixture(const std::string &name);
std::string mixture_names();

// Returns the type of a matrix. `name` is the tensor's name in GGUF, in layer `layer` of `layers`;
// `columns` is the length of its rows. If rows are no whole blocks, another type replaces it: Q5_0,
// Q5_1 or Q8_0 for Q4_K, Q5_K and Q6_K, and F16 if no block of 32 fits. What weighs experts is F32
// in any mixture.
GgufType matrix_type(const Mixture &mixture, std::string_view name, bool tied_head, uint32_t layer,
                     uint32_t layers, uint64_t columns);

} // namespace stasis
