// Which type each matrix of a model is written in: the types by the names that people ask for.
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
    GgufType head;          // of the output head, or the embeddings where these are the head
    bool more;              // attn_v and ffn_down of half of the layers as Q6_K
    GgufType fused = usual; // attn_qkv
};

// Throws Error(unsupported) naming those there are.
const Mixture &find_mixture(const std::string &name);
std::string mixture_names();

// `name`: of the tensor, as GGUF has it; `layer` of `layers`; `columns`: length of its rows. Where
// these are no whole blocks, another type stands in: Q5_0, Q5_1 or Q8_0 for Q4_K, Q5_K and Q6_K,
// and F16 where no 32 fit.
GgufType matrix_type(const Mixture &mixture, std::string_view name, bool tied_head, uint32_t layer,
                     uint32_t layers, uint64_t columns);

} // namespace stasis
