// Chooses types; see mixture.h. The rules are those of the published quantizer (llama.cpp,
// src/llama-quant.cpp), so that a file has the types that its name stands for.
#include "runtime/quantize/mixture.h"

#include <algorithm>
#include <iterator>

#include "format/state/error.h"

namespace stasis {

namespace {

constexpr Mixture kMixtures[] = {
    {"F16", 1, GgufType::f16, GgufType::f16, false},
    {"BF16", 32, GgufType::bf16, GgufType::bf16, false},
    {"Q8_0", 7, GgufType::q8_0, GgufType::q8_0, false},
    {"Q4_0", 2, GgufType::q4_0, GgufType::q6_k, false},
    {"Q4_1", 3, GgufType::q4_1, GgufType::q6_k, false},
    {"Q5_0", 8, GgufType::q5_0, GgufType::q6_k, false},
    {"Q5_1", 9, GgufType::q5_1, GgufType::q6_k, false},
    {"Q4_K", 14, GgufType::q4_k, GgufType::q6_k, false},
    {"Q5_K", 16, GgufType::q5_k, GgufType::q6_k, false},
    {"Q6_K", 18, GgufType::q6_k, GgufType::q6_k, false},
    {"Q4_K_M", 15, GgufType::q4_k, GgufType::q6_k, true, GgufType::q5_k},
    {"Q5_K_M", 17, GgufType::q5_k, GgufType::q6_k, true, GgufType::q6_k},
};

// Reports whether a layer is in the first or last eighth, or is every third between.
bool has_more_bits(uint32_t layer, uint32_t layers) {
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// Returns the type, or the next smaller block type whose blocks fit the row.
GgufType fitting(GgufType type, uint64_t columns) {
    if (columns % gguf_block(type).elements == 0) {
        return type;
    }
    const GgufType smaller = type == GgufType::q4_k   ? GgufType::q5_0
                             : type == GgufType::q5_k ? GgufType::q5_1
                             : type == GgufType::q6_k ? GgufType::q8_0
                                                      : GgufType::f16;
    return fitting(smaller, columns);
}

} // namespace

const Mixture &find_mixture(const std::string &name) {
    const auto found = std::find_if(std::begin(kMixtures), std::end(kMixtures),
                                    [&](const Mixture &mixture) { return name == mixture.name; });
    if (found == std::end(kMixtures)) {
        fail(Status::unsupported, "type \"%.40s\": there are %s", name.c_str(),
             mixture_names().c_str());
    }
    return *found;
}

std::string mixture_names() {
    std::string out;
    for (const Mixture &mixture : kMixtures) {
        out += (out.empty() ? "" : ", ") + std::string(mixture.name);
    }
    return out;
}

GgufType matrix_type(const Mixture &mixture, std::string_view name, bool tied_head, uint32_t layer,
                     uint32_t layers, uint64_t columns) {
    if (name.find(".ffn_gate_inp") != std::string_view::npos) {
        return GgufType::f32; // which experts are chosen
    }
    const bool head = name == "output.weight" || (tied_head && name == "token_embd.weight");
    const bool better = name.ends_with(".attn_v.weight") ||
                        name.find(".ffn_down") != std::string_view::npos; // of experts too
    if (head) {
        return fitting(mixture.head, columns);
    }
    if (mixture.more && name.ends_with(".attn_qkv.weight")) {
        return fitting(mixture.fused, columns);
    }
    const bool more = mixture.more && better && has_more_bits(layer, layers);
    return fitting(more ? GgufType::q6_k : mixture.usual, columns);
}

} // namespace stasis
