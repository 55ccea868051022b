// Lists and finds the tensors of a model; see weights_plan.h.
#include "runtime/model/weights_plan.h"

#include <set>
#include <string_view>

#include "format/state/error.h"

namespace stasis {

namespace {

constexpr char kEmbeddings[] = "embed_tokens.weight";
constexpr char kHead[] = "lm_head.weight";

// The prefixes of names in checkpoints: a text model; a multimodal Gemma 3 as published; the same
// as newer tools write it, and a multimodal Qwen3.5. Only the latter two may have a vision tower
// beside the text model.
struct Layout {
    const char *body;
    const char *head;
    bool multimodal;
};
constexpr Layout kLayouts[] = {
    {"model.", "", false},
    {"language_model.model.", "language_model.", true},
    {"model.language_model.", "", true},
};

constexpr const char *kTowers[] = {"vision_tower.", "multi_modal_projector.", "model.vision_tower.",
                                   "model.multi_modal_projector.", "model.visual."};
// Layers of Qwen3.5 that predict further tokens.
constexpr std::string_view kPredicting = "mtp.";

// Builds the list of tensors of one model.
struct Planner {
    const Config &config;
    std::vector<PlannedTensor> &plan;

    void vector(const std::string &name, uint64_t size, WeightGroup group, uint32_t layer,
                const float *&place, Stored stored = Stored::as_read) const {
        plan.push_back({name, {size}, group, layer, nullptr, &place, stored});
    }

    void norm(const std::string &name, uint64_t size, const float *&place) const {
        vector(name + ".weight", size, WeightGroup::norms, 0, place,
               config.norm_plus_one ? Stored::less_one : Stored::as_read);
    }

    void matrix(const std::string &name, uint64_t rows, uint64_t columns, WeightGroup group,
                uint32_t layer, Matrix &place) const {
        place.rows = rows;
        place.columns = columns;
        plan.push_back({name, {rows, columns}, group, layer, &place});
    }

    void linear(const std::string &name, uint64_t rows, uint64_t columns, bool biased,
                WeightGroup group, uint32_t layer, Matrix &place) const {
        matrix(name + ".weight", rows, columns, group, layer, place);
        if (biased) {
            vector(name + ".bias", rows, group, layer, place.bias);
        }
    }

    // A gated MLP, whose names begin with `name`.
    void gated(const std::string &name, uint64_t intermediate, uint32_t layer, Mlp &place) const {
        const auto part = [&](const char *called, uint64_t rows, uint64_t columns, Matrix &matrix) {
            linear(name + called, rows, columns, config.mlp_bias, WeightGroup::mlp, layer, matrix);
        };
        part("gate_proj", intermediate, config.hidden, place.gate);
        part("up_proj", intermediate, config.hidden, place.up);
        part("down_proj", config.hidden, intermediate, place.down);
    }

    void experts(const std::string &mlp, uint32_t layer, ExpertWeights &place) const;
    void attention(const std::string &name, uint32_t index, LayerWeights &place) const;
    void recurrent(const std::string &name, uint32_t index, RecurrentWeights &place) const;
    void layer(uint32_t index, LayerWeights &place) const;
};

// The experts of a layer, each with tensors of its own (split_experts).
void Planner::experts(const std::string &mlp, uint32_t layer, ExpertWeights &place) const {
    const Experts &sizes = config.experts;
    linear(mlp + "gate", sizes.count, config.hidden, false, WeightGroup::mlp, layer, place.router);
    place.each.resize(sizes.count);
    for (uint32_t i = 0; i < sizes.count; ++i) {
        gated(mlp + "experts." + std::to_string(i) + ".", sizes.intermediate, layer, place.each[i]);
    }
    if (sizes.shared != 0) {
        gated(mlp + "shared_expert.", sizes.shared, layer, place.shared);
        linear(mlp + "shared_expert_gate", 1, config.hidden, false, WeightGroup::mlp, layer,
               place.shared_gate);
    }
}

void Planner::attention(const std::string &name, uint32_t index, LayerWeights &place) const {
    const uint64_t hidden = config.hidden;
    const uint64_t query_size = uint64_t{config.heads} * config.head_dim;
    const uint64_t key_size = uint64_t{config.kv_heads} * config.head_dim;
    const auto attend = [&](const char *part, uint64_t rows, uint64_t columns, bool biased,
                            Matrix &matrix) {
        linear(name + part, rows, columns, biased, WeightGroup::attention, index, matrix);
    };
    attend("q_proj", (config.output_gate ? 2 : 1) * query_size, hidden, config.attention_bias,
           place.query);
    attend("k_proj", key_size, hidden, config.attention_bias, place.key);
    attend("v_proj", key_size, hidden, config.attention_bias, place.value);
    attend("o_proj", hidden, query_size, config.output_bias, place.output);
}

// All of it counts as attention in the identity. The layer's norm has plain weights in any model.
void Planner::recurrent(const std::string &name, uint32_t index, RecurrentWeights &place) const {
    constexpr WeightGroup kGroup = WeightGroup::attention;
    const Recurrent &sizes = config.recurrent;
    const uint64_t heads = sizes.value_heads, channels = sizes.channels();
    const auto multiply = [&](const char *part, uint64_t rows, uint64_t columns, Matrix &matrix) {
        linear(name + part, rows, columns, false, kGroup, index, matrix);
    };
    multiply("in_proj_qkv", channels, config.hidden, place.input);
    multiply("in_proj_z", sizes.value_size(), config.hidden, place.gate);
    multiply("in_proj_a", heads, config.hidden, place.decay);
    multiply("in_proj_b", heads, config.hidden, place.beta);
    multiply("out_proj", config.hidden, sizes.value_size(), place.output);
    vector(name + "conv1d.weight", channels, kGroup, index, place.convolution, Stored::by_channel);
    plan.back().shape = {channels, 1, sizes.taps};
    vector(name + "A_log", heads, kGroup, index, place.rate,
           sizes.stored_rates ? Stored::as_read : Stored::log_rate);
    vector(name + "dt_bias", heads, kGroup, index, place.bias);
    vector(name + "norm.weight", sizes.value_dim, kGroup, index, place.norm);
}

void Planner::layer(uint32_t index, LayerWeights &place) const {
    const std::string name = "layers." + std::to_string(index) + ".";
    const std::string self = name + "self_attn.";
    const std::string mlp = name + "mlp.";
    const uint64_t hidden = config.hidden;
    const bool is_recurrent = config.layer[index].recurrent;
    if (is_recurrent) {
        recurrent(name + "linear_attn.", index, place.recurrent);
    } else {
        attention(self, index, place);
    }
    if (config.layer[index].experts) {
        experts(mlp, index, place.experts);
    } else {
        gated(mlp, config.intermediate, index, place.mlp);
    }

    norm(name + "input_layernorm", hidden, place.attention_norm);
    if (config.post_norms) {
        norm(name + "post_attention_layernorm", hidden, place.post_attention_norm);
        norm(name + "pre_feedforward_layernorm", hidden, place.mlp_norm);
        norm(name + "post_feedforward_layernorm", hidden, place.post_mlp_norm);
    } else {
        // In a layer with two norms, the one named after attention is before the MLP.
        norm(name + "post_attention_layernorm", hidden, place.mlp_norm);
    }
    if (config.query_key_norm && !is_recurrent) {
        norm(self + "q_norm", config.head_dim, place.query_norm);
        norm(self + "k_norm", config.head_dim, place.key_norm);
    }
}

const Layout &find_layout(const Checkpoint &checkpoint) {
    for (const Layout &layout : kLayouts) {
        const std::string name = std::string(layout.body) + kEmbeddings;
        if (checkpoint.tensors.count(name) != 0 || checkpoint.refused.count(name) != 0) {
            return layout;
        }
    }
    fail(Status::corrupt, "tensor %s%s is missing from the checkpoint", kLayouts[0].body,
         kEmbeddings);
}

std::string stored_name(const Layout &layout, const std::string &name) {
    return (name == kHead ? layout.head : layout.body) + name;
}

std::string shape_text(const std::vector<uint64_t> &shape) {
    std::string text = "[";
    for (const uint64_t dimension : shape) {
        text += (text.size() > 1 ? ", " : "") + std::to_string(dimension);
    }
    return text + "]";
}

std::string shown(const Checkpoint &checkpoint, const std::string &name) {
    return checkpoint.name_in_file ? checkpoint.name_in_file(name) : name;
}

const Tensor &find_tensor(const Checkpoint &checkpoint, const std::string &name,
                          const std::vector<uint64_t> &shape) {
    const auto refused = checkpoint.refused.find(name);
    if (refused != checkpoint.refused.end()) {
        fail(Status::unsupported,
             "tensor %s has dtype %s, which is not supported (BF16, F16 and F32 are)", name.c_str(),
             refused->second.c_str());
    }
    const auto found = checkpoint.tensors.find(name);
    if (found == checkpoint.tensors.end()) {
        fail(Status::corrupt, "tensor %s is missing from the checkpoint",
             shown(checkpoint, name).c_str());
    }
    if (found->second.shape != shape) {
        fail(Status::corrupt, "tensor %s in %s: %s asks for the shape %s, found %s",
             shown(checkpoint, name).c_str(), found->second.file.c_str(), checkpoint.description,
             shape_text(shape).c_str(), shape_text(found->second.shape).c_str());
    }
    return found->second;
}

// Names and rows of the matrices in a tensor, from the first row on.
using Parts = std::vector<std::pair<std::string, uint64_t>>;

// Splits a tensor of several matrices into tensors of their own, without copying.
void split_rows(Checkpoint &checkpoint, const std::string &prefix, const std::string &name,
                const std::vector<uint64_t> &shape, const Parts &parts) {
    const uint64_t columns = shape.back();
    uint64_t rows = 0;
    for (const auto &[part, part_rows] : parts) {
        rows += part_rows;
    }
    Tensor rest = find_tensor(checkpoint, name, shape);
    const size_t row_bytes = rest.size_bytes / rows;
    for (const auto &[part, part_rows] : parts) {
        rest.shape = {part_rows, columns};
        rest.size_bytes = part_rows * row_bytes;
        if (!checkpoint.tensors.emplace(prefix + part + ".weight", rest).second) {
            fail(Status::corrupt, "the checkpoint has the tensor %s twice, also in %s",
                 shown(checkpoint, prefix + part + ".weight").c_str(),
                 shown(checkpoint, name).c_str());
        }
        rest.offset_bytes += rest.size_bytes;
    }
    checkpoint.tensors.erase(name);
}

// Reports whether a tensor cannot influence results. Such tensors are rotary frequencies that old
// tools saved although they follow from the config, the vision tower, layers that predict further
// tokens, and a copy of the embeddings that some tools write as the head of a model with a tied
// head. (An untied head is in the plan, and so is not unknown.)
bool is_harmless(std::string_view name, const Layout &layout) {
    constexpr std::string_view kFrequencies = ".rotary_emb.inv_freq";
    if (name.size() > kFrequencies.size() &&
        name.substr(name.size() - kFrequencies.size()) == kFrequencies) {
        return true;
    }
    for (const std::string_view tower : kTowers) {
        if (layout.multimodal && name.substr(0, tower.size()) == tower) {
            return true;
        }
    }
    return name.starts_with(kPredicting) || name == stored_name(layout, kHead);
}

} // namespace

std::vector<PlannedTensor> plan_weights(const Config &config, Weights &weights) {
    std::vector<PlannedTensor> plan;
    const Planner planner{config, plan};
    weights.layers.resize(config.layers);
    planner.matrix(kEmbeddings, config.vocabulary, config.hidden, WeightGroup::embeddings, 0,
                   weights.embeddings);
    plan.back().multiplied = config.tied_head;
    for (uint32_t i = 0; i < config.layers; ++i) {
        planner.layer(i, weights.layers[i]);
    }
    planner.norm("norm", config.hidden, weights.final_norm);
    if (!config.tied_head) {
        planner.matrix(kHead, config.vocabulary, config.hidden, WeightGroup::head, 0, weights.head);
    }
    return plan;
}

namespace {

// Phi-3: q, k and v are one matrix, and gate and up.
void split_fused(const Config &config, const std::string &layer, Checkpoint &checkpoint) {
    const uint64_t query_size = uint64_t{config.heads} * config.head_dim;
    const uint64_t key_size = uint64_t{config.kv_heads} * config.head_dim;
    const std::string attention = layer + "self_attn.", mlp = layer + "mlp.";
    split_rows(checkpoint, attention, attention + "qkv_proj.weight",
               {query_size + 2 * key_size, config.hidden},
               {{"q_proj", query_size}, {"k_proj", key_size}, {"v_proj", key_size}});
    split_rows(checkpoint, mlp, mlp + "gate_up_proj.weight",
               {2 * uint64_t{config.intermediate}, config.hidden},
               {{"gate_proj", config.intermediate}, {"up_proj", config.intermediate}});
}

// Mixtures of experts in three dimensions: [expert][gate, up][hidden] and [expert][hidden][...], or
// gate and up for themselves, as in GGUF files.
void split_experts(const Config &config, const std::string &layer, Checkpoint &checkpoint) {
    const uint64_t count = config.experts.count, inner = config.experts.intermediate;
    const std::string experts = layer + "mlp.experts.";
    const auto split = [&](const std::string &fused, uint64_t rows, const Parts &of_expert,
                           uint64_t columns) {
        if (checkpoint.tensors.count(experts + fused) == 0) {
            return; // the plan names what is missing
        }
        Parts parts;
        for (uint64_t i = 0; i < count; ++i) {
            for (const auto &[part, part_rows] : of_expert) {
                parts.emplace_back(std::to_string(i) + "." + part, part_rows);
            }
        }
        split_rows(checkpoint, experts, experts + fused, {count, rows, columns}, parts);
    };
    for (const std::string ending : {"", ".weight"}) { // of Hugging Face, of GGUF
        split("gate_up_proj" + ending, 2 * inner, {{"gate_proj", inner}, {"up_proj", inner}},
              config.hidden);
        for (const std::string part : {"gate_proj", "up_proj"}) {
            split(part + ending, inner, {{part, inner}}, config.hidden);
        }
        split("down_proj" + ending, config.hidden, {{"down_proj", config.hidden}}, inner);
    }
}

} // namespace

void split_tensors(const Config &config, Checkpoint &checkpoint) {
    const std::string body = find_layout(checkpoint).body;
    for (uint32_t i = 0; i < config.layers; ++i) {
        const std::string layer = body + "layers." + std::to_string(i) + ".";
        if (config.fused_tensors) {
            split_fused(config, layer, checkpoint);
        }
        if (config.layer[i].experts) {
            split_experts(config, layer, checkpoint);
        }
    }
    // Before the plan lists them, because a short config can ask for very many.
    uint64_t needed = 0;
    for (const LayerConfig &layer : config.layer) {
        needed += layer.experts ? 3 * uint64_t{config.experts.count} : 0;
    }
    if (needed > checkpoint.tensors.size()) {
        fail(Status::corrupt,
             "%s asks for %llu matrices of experts, the checkpoint has %zu tensors",
             checkpoint.description, static_cast<unsigned long long>(needed),
             checkpoint.tensors.size());
    }
}

void find_tensors(const Checkpoint &checkpoint, std::vector<PlannedTensor> &plan) {
    const Layout &layout = find_layout(checkpoint);
    std::set<std::string> planned;
    for (PlannedTensor &entry : plan) {
        const std::string name = stored_name(layout, entry.name);
        entry.shown = checkpoint.name_in_file ? checkpoint.name_in_file(name) : entry.name;
        entry.tensor = &find_tensor(checkpoint, name, entry.shape);
        planned.insert(name);
    }
    const auto check_known = [&](const std::string &name, const std::string &file) {
        if (planned.count(name) == 0 && !is_harmless(name, layout)) {
            fail(Status::unsupported, "tensor %s%s is not part of the architecture in %s",
                 shown(checkpoint, name).c_str(), file.c_str(), checkpoint.description);
        }
    };
    for (const auto &[name, tensor] : checkpoint.tensors) {
        check_known(name, " in " + tensor.file);
    }
    for (const auto &[name, dtype] : checkpoint.refused) {
        check_known(name, "");
    }
}

const char *name_of(DataType type) {
    constexpr const char *kNames[] = {"BF16", "F16",  "F32",  "Q8_0", "Q4_0", "Q4_1",
                                      "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};
    return kNames[static_cast<size_t>(type)];
}

} // namespace stasis
