// Renames the tensors of LFM2, Gemma 4 and the MLPs of Granite 4 as the plan names those of other
// architectures; see weights_plan.h, rename_tensors. Names: transformers, modeling_lfm2.py,
// modeling_gemma4.py and modeling_granitemoehybrid.py.
#include <span>
#include <utility>

#include "format/state/error.h"
#include "runtime/model/weights_find.h"
#include "runtime/model/weights_plan.h"

namespace stasis {

namespace {

struct Renamed {
    std::string_view stored, planned;
};
constexpr Renamed kLfm2Model[] = {{"embedding_norm.", "norm."}};
constexpr Renamed kLfm2Layer[] = {{"operator_norm.", "input_layernorm."},
                                  {"ffn_norm.", "post_attention_layernorm."},
                                  {"feed_forward.w1.", "mlp.gate_proj."},
                                  {"feed_forward.w3.", "mlp.up_proj."},
                                  {"feed_forward.w2.", "mlp.down_proj."},
                                  {"self_attn.out_proj.", "self_attn.o_proj."},
                                  {"self_attn.q_layernorm.", "self_attn.q_norm."},
                                  {"self_attn.k_layernorm.", "self_attn.k_norm."}};

// Experts beside an MLP.
constexpr Renamed kGemma4Layer[] = {{"experts.", "mlp.experts."},
                                    {"router.scale", "mlp.gate.scale"},
                                    {"router.per_expert_scale", "mlp.gate.per_expert_scale"},
                                    {"router.proj.", "mlp.gate."}};

constexpr Renamed kGraniteLayer[] = {{"shared_mlp.input_linear.", "mlp.gate_up_proj."},
                                     {"shared_mlp.output_linear.", "mlp.down_proj."}};

// The beginnings of names in an architecture: of the model, and within a layer.
struct Names {
    std::span<const Renamed> model, layer;
};

Names names_of(const Config &config) {
    if (config.operator_names) {
        return {kLfm2Model, kLfm2Layer};
    }
    if (config.shared_names) {
        return {{}, kGraniteLayer};
    }
    return config.experts.beside_mlp ? Names{{}, kGemma4Layer} : Names{};
}

// Returns the name of a tensor with the first of its beginnings that the list has replaced.
std::string replaced(std::string_view name, std::span<const Renamed> list,
                     std::string_view Renamed::*from, std::string_view Renamed::*to) {
    for (const Renamed &each : list) {
        if (name.starts_with(each.*from)) {
            return std::string(each.*to) + std::string(name.substr((each.*from).size()));
        }
    }
    return std::string(name);
}

// Returns the other name of a tensor below the checkpoint's prefix.
std::string renamed(const Names &names, const std::string &name, std::string_view Renamed::*from,
                    std::string_view Renamed::*to) {
    constexpr std::string_view kLayers = "layers.";
    if (!name.starts_with(kLayers)) {
        return replaced(name, names.model, from, to);
    }
    const size_t number_end = name.find('.', kLayers.size());
    const size_t part = number_end == std::string::npos ? name.size() : number_end + 1;
    return name.substr(0, part) +
           replaced(std::string_view(name).substr(part), names.layer, from, to);
}

} // namespace

void rename_tensors(const Config &config, Checkpoint &checkpoint) {
    const Names names = names_of(config);
    if (names.layer.empty() || checkpoint.name_in_file) { // GGUF files have the plan's already
        return;
    }
    const std::string body = body_prefix(checkpoint);
    const auto other = [body, names](const std::string &name, std::string_view Renamed::*from,
                                     std::string_view Renamed::*to) {
        return name.starts_with(body) ? body + renamed(names, name.substr(body.size()), from, to)
                                      : name;
    };
    std::map<std::string, Tensor> tensors;
    for (auto &[name, tensor] : checkpoint.tensors) {
        const std::string planned = other(name, &Renamed::stored, &Renamed::planned);
        if (!tensors.emplace(planned, std::move(tensor)).second) {
            fail(Status::corrupt, "the checkpoint has the tensor %s twice, also as %s",
                 name.c_str(), planned.c_str());
        }
    }
    checkpoint.tensors = std::move(tensors);
    std::map<std::string, std::string> refused;
    for (const auto &[name, dtype] : checkpoint.refused) {
        refused.emplace(other(name, &Renamed::stored, &Renamed::planned), dtype);
    }
    checkpoint.refused = std::move(refused);
    checkpoint.name_in_file = [other](const std::string &planned) {
        return other(planned, &Renamed::planned, &Renamed::stored);
    };
}

} // namespace stasis
