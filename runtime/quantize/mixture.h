// Types for the matrices of a model, by the common names of mixtures. Knows no values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/model/gguf/types.h"

namespace stasis {

// Matrices whose type a mixture chooses by their layer.
enum class MixedPart { value, down, output, fused }; // attn_v, ffn_down, attn_output, attn_qkv

// A matrix of a model, as far as its type depends on it.
struct MixedMatrix {
    std::string_view name; // of the tensor in GGUF
    uint64_t columns = 0;  // the length of its rows
    uint32_t layer = 0, layers = 1;
    bool tied_head = false; // of the model
    uint32_t queries = 1;   // query heads for each key head
};

struct Mixture {
    const char *name;
    uint32_t file_type; // general.file_type (ggml's docs/gguf.md)
    GgufType usual;
    GgufType head; // of the output head, or of embeddings that are the head
    // The type of one of the parts above; null: the usual one for all.
    GgufType (*part)(MixedPart part, const MixedMatrix &matrix) = nullptr;
    GgufType experts = usual; // of matrices of experts
};

// Returns a mixture by its name. Throws Error(unsupported) listing all names.
const Mixture &find_mixture(const std::string &name);
std::string mixture_names();

// Returns the type of a matrix. If rows are no whole blocks, another type replaces it: Q4_0 for
// Q2_K and Q3_K, Q5_0, Q5_1 or Q8_0 for Q4_K, Q5_K and Q6_K, IQ4_NL for IQ4_XS, and F16 if no block
// of 32 fits. In any mixture what weighs experts is F32, and what gives layers their inputs has 16
// bits.
GgufType matrix_type(const Mixture &mixture, const MixedMatrix &matrix);

} // namespace stasis
