// Chooses types; see mixture.h. The rules are those of the published quantizer (llama.cpp,
// src/llama-quant.cpp) for models without an importance matrix, so that a file has the types that
// its name stands for. It calls Q3_K "Q3_K_S".
#include "runtime/quantize/mixture.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "format/state/error.h"

namespace stasis {

namespace {

// Reports whether a layer is in the first or last eighth, or is every third between.
bool has_more_bits(const MixedMatrix &matrix) {
    const uint32_t layer = matrix.layer, layers = matrix.layers;
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

// A mixture for which four or more query heads share a key head spends more on their values.
bool shares_values(const MixedMatrix &matrix) {
    return matrix.queries >= 4;
}

GgufType part_of_q2_k(MixedPart part, const MixedMatrix &matrix) {
    const bool values = part == MixedPart::value || part == MixedPart::fused;
    return values && shares_values(matrix) ? GgufType::q4_k : GgufType::q3_k;
}

GgufType part_of_q3_k_m(MixedPart part, const MixedMatrix &matrix) {
    const bool first = part == MixedPart::down     ? matrix.layer < matrix.layers / 16
                       : part == MixedPart::output ? false
                                                   : matrix.layer < 2;
    return first ? GgufType::q5_k : GgufType::q4_k;
}

GgufType part_of_q3_k_l(MixedPart, const MixedMatrix &) {
    return GgufType::q5_k;
}

// Q4_K_M and Q5_K_M: half of the layers have better values and down projections.
template <GgufType usual, GgufType fused>
GgufType part_of_medium(MixedPart part, const MixedMatrix &matrix) {
    if (part == MixedPart::fused) {
        return fused;
    }
    return part != MixedPart::output && has_more_bits(matrix) ? GgufType::q6_k : usual;
}

template <GgufType usual> GgufType part_of_iq4(MixedPart part, const MixedMatrix &matrix) {
    const bool better = part == MixedPart::down     ? matrix.layer < matrix.layers / 8
                        : part == MixedPart::output ? false
                                                    : shares_values(matrix);
    return better ? GgufType::q5_k : usual;
}

constexpr auto part_of_q4_k_m = part_of_medium<GgufType::q4_k, GgufType::q5_k>;
constexpr auto part_of_q5_k_m = part_of_medium<GgufType::q5_k, GgufType::q6_k>;

constexpr Mixture kMixtures[] = {
    {"F16", 1, GgufType::f16, GgufType::f16},
    {"BF16", 32, GgufType::bf16, GgufType::bf16},
    {"Q8_0", 7, GgufType::q8_0, GgufType::q8_0},
    {"Q4_0", 2, GgufType::q4_0, GgufType::q6_k},
    {"Q4_1", 3, GgufType::q4_1, GgufType::q6_k},
    {"Q5_0", 8, GgufType::q5_0, GgufType::q6_k},
    {"Q5_1", 9, GgufType::q5_1, GgufType::q6_k},
    {"Q3_K", 11, GgufType::q3_k, GgufType::q6_k},
    {"Q4_K", 14, GgufType::q4_k, GgufType::q6_k},
    {"Q5_K", 16, GgufType::q5_k, GgufType::q6_k},
    {"Q6_K", 18, GgufType::q6_k, GgufType::q6_k},
    {"Q2_K", 10, GgufType::q2_k, GgufType::q6_k, part_of_q2_k},
    {"Q3_K_M", 12, GgufType::q3_k, GgufType::q6_k, part_of_q3_k_m},
    {"Q3_K_L", 13, GgufType::q3_k, GgufType::q6_k, part_of_q3_k_l},
    {"Q4_K_M", 15, GgufType::q4_k, GgufType::q6_k, part_of_q4_k_m},
    {"Q5_K_M", 17, GgufType::q5_k, GgufType::q6_k, part_of_q5_k_m},
    {"IQ4_NL", 25, GgufType::iq4_nl, GgufType::q6_k, part_of_iq4<GgufType::iq4_nl>},
    {"IQ4_XS", 30, GgufType::iq4_xs, GgufType::q6_k, part_of_iq4<GgufType::iq4_xs>},
    {"MXFP4_MOE", 38, GgufType::q8_0, GgufType::q8_0, nullptr, GgufType::mxfp4},
};

// Returns the part that a matrix is; nothing if it is none of them.
std::optional<MixedPart> part_of(std::string_view name) {
    return name.ends_with(".attn_v.weight")                   ? std::optional(MixedPart::value)
           : name.find(".ffn_down") != std::string_view::npos ? MixedPart::down // of experts too
           : name.ends_with(".attn_output.weight")            ? MixedPart::output
           : name.ends_with(".attn_qkv.weight")               ? MixedPart::fused
                                                              : std::optional<MixedPart>();
}

// Returns the type, or the next block type whose blocks fit the row.
GgufType fitting(GgufType type, uint64_t columns) {
    if (columns % gguf_block(type).elements == 0) {
        return type;
    }
    const auto replaced = [&] {
        switch (type) {
        case GgufType::q2_k:
        case GgufType::q3_k:
            return GgufType::q4_0;
        case GgufType::q4_k:
            return GgufType::q5_0;
        case GgufType::q5_k:
            return GgufType::q5_1;
        case GgufType::q6_k:
            return GgufType::q8_0;
        case GgufType::iq4_xs:
            return GgufType::iq4_nl;
        default:
            return GgufType::f16;
        }
    };
    return fitting(replaced(), columns);
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

GgufType matrix_type(const Mixture &mixture, const MixedMatrix &matrix) {
    const std::string_view name = matrix.name;
    if (name.find(".ffn_gate_inp") != std::string_view::npos) {
        return GgufType::f32; // which experts are chosen
    }
    if (name == "per_layer_model_proj.weight") { // every layer's inputs, for every token
        return mixture.usual == GgufType::f16 ? GgufType::f16 : GgufType::bf16;
    }
    if (name == "output.weight" || (matrix.tied_head && name == "token_embd.weight")) {
        return fitting(mixture.head, matrix.columns);
    }
    if (name.ends_with("_exps.weight") && mixture.experts != mixture.usual) {
        return fitting(mixture.experts, matrix.columns);
    }
    const std::optional<MixedPart> part = part_of(name);
    const bool chosen = part && mixture.part != nullptr;
    return fitting(chosen ? mixture.part(*part, matrix) : mixture.usual, matrix.columns);
}

} // namespace stasis
