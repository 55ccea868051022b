// Renames the tensors of LFM2, and the MLPs of Granite 4, as the plan names those of other
// architectures; see weights_plan.h, rename_tensors. Names: transformers, modeling_lfm2.py and
// modeling_granitemoehybrid.py.
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
constexpr Renamed kLfmModel[] = {{"embedding_norm.", "norm."}};
constexpr Renamed kLfmLayer[] = {{"operator_norm.", "input_layernorm."},
                                 {"ffn_norm.", "post_attention_layernorm."},
                                 {"feed_forward.w1.", "mlp.gate_proj."},
                                 {"feed_forward.w3.", "mlp.up_proj."},
                                 {"feed_forward.w2.", "mlp.down_proj."},
                                 {"self_attn.out_proj.", "self_attn.o_proj."},
                                 {"self_attn.q_layernorm.", "self_attn.q_norm."},
                                 {"self_attn.k_layernorm.", "self_attn.k_norm."}};

constexpr Renamed kGraniteLayer[] = {{"shared_mlp.input_linear.", "mlp.gate_up_proj."},
                                     {"shared_mlp.output_linear.", "mlp.down_proj."}};

// The other names of an architecture.
struct RenamedLists {
    std::span<const Renamed> model, layer;
};

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
std::string renamed(const std::string &name, const RenamedLists &lists,
                    std::string_view Renamed::*from, std::string_view Renamed::*to) {
    constexpr std::string_view kLayers = "layers.";
    if (!name.starts_with(kLayers)) {
        return replaced(name, lists.model, from, to);
    }
    const size_t number_end = name.find('.', kLayers.size());
    const size_t part = number_end == std::string::npos ? name.size() : number_end + 1;
    return name.substr(0, part) +
           replaced(std::string_view(name).substr(part), lists.layer, from, to);
}

} // namespace

void rename_tensors(const Config &config, Checkpoint &checkpoint) {
    if (!config.operator_names && !config.shared_names) {
        return;
    }
    const RenamedLists lists = config.operator_names ? RenamedLists{kLfmModel, kLfmLayer}
                                                     : RenamedLists{{}, kGraniteLayer};
    const std::string body = body_prefix(checkpoint);
    const auto other = [body, lists](const std::string &name, std::string_view Renamed::*from,
                                     std::string_view Renamed::*to) {
        return name.starts_with(body) ? body + renamed(name.substr(body.size()), lists, from, to)
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
