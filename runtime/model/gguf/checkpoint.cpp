// Translates tensor names between GGUF (ggml's docs/gguf.md, "Standardized tensor names"; for MTP
// heads llama.cpp's conversion/qwen.py) and the plan of weights_plan.cpp.
#include "runtime/model/gguf/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include "format/state/error.h"
#include "runtime/model/embedding_dense.h"
#include "runtime/model/family/family.h"
#include "runtime/model/gguf/config_keys.h"

namespace stasis {

namespace {

struct Name {
    const char *gguf, *plan; // before ".weight" or ".bias"
};

constexpr Name kModel[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};
constexpr Name kLayer[] = {{"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
                           {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
                           {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
                           {"attn_norm", "input_layernorm"},    {"ffn_gate", "mlp.gate_proj"},
                           {"ffn_up", "mlp.up_proj"},           {"ffn_down", "mlp.down_proj"}};
// The experts of a layer are one tensor of three dimensions in GGUF files.
constexpr char kExpertsOfLayer[] = "mlp.experts.";
constexpr Name kExperts[] = {{"ffn_gate_inp", "mlp.gate"},
                             {"ffn_gate_exps", "mlp.experts.gate_proj"},
                             {"ffn_up_exps", "mlp.experts.up_proj"},
                             {"ffn_gate_up_exps", "mlp.experts.gate_up_proj"},
                             {"ffn_down_exps", "mlp.experts.down_proj"},
                             {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                             {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                             {"ffn_down_shexp", "mlp.shared_expert.down_proj"},
                             {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"}};
// Of experts beside an MLP, with their endings, because these have others.
constexpr Name kBesideMlp[] = {{"ffn_gate_inp.scale", "mlp.gate.scale"},
                               {"ffn_down_exps.scale", "mlp.gate.per_expert_scale"}};
// Gemma 4.
constexpr Name kGemma4Names[] = {{"post_ffw_norm_1", "post_feedforward_layernorm_1"},
                                 {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
                                 {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
                                 {"inp_gate", "per_layer_input_gate"},
                                 {"proj", "per_layer_projection"},
                                 {"post_norm", "post_per_layer_input_norm"}};
constexpr Name kLayerScalar[] = {{"layer_output_scale.weight", "layer_scalar"}};
constexpr Name kInputsModel[] = {{"token_embd", "model.embed_tokens"},
                                 {"output_norm", "model.norm"},
                                 {"output", "lm_head"},
                                 {"per_layer_token_embd", "model.embed_tokens_per_layer"},
                                 {"per_layer_model_proj", "model.per_layer_model_projection"},
                                 {"per_layer_proj_norm", "model.per_layer_projection_norm"}};
// In fused files, the matrix of gate and up has the name of up.
constexpr Name kFused[] = {{"attn_qkv", "self_attn.qkv_proj"}, {"ffn_up", "mlp.gate_up_proj"}};
constexpr Name kRecurrent[] = {
    {"attn_qkv", "linear_attn.in_proj_qkv"}, {"attn_gate", "linear_attn.in_proj_z"},
    {"ssm_alpha", "linear_attn.in_proj_a"},  {"ssm_beta", "linear_attn.in_proj_b"},
    {"ssm_conv1d", "linear_attn.conv1d"},    {"ssm_norm", "linear_attn.norm"},
    {"ssm_out", "linear_attn.out_proj"},     {"post_attention_norm", "post_attention_layernorm"}};
// gpt-oss calls the second of its two norms like this.
constexpr Name kSinkNorms[] = {{"post_attention_norm", "post_attention_layernorm"}};
constexpr Name kSinks[] = {{"attn_sinks.weight", "self_attn.sinks"}};
// With what the others have as an ending, because these have none in one of the formats.
constexpr Name kRecurrentWhole[] = {{"ssm_a", "linear_attn.A_log"},
                                    {"ssm_dt.bias", "linear_attn.dt_bias"}};
// The block after the layers is the MTP head: the head's layer, under a layer's names, and these.
constexpr Name kMtp[] = {{"nextn.eh_proj.weight", "mtp.fc.weight"},
                         {"nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight"},
                         {"nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight"},
                         {"nextn.shared_head_norm.weight", "mtp.norm.weight"}};
constexpr char kLayerOfMtp[] = "mtp.layers.0.";
// Of LFM2, whose final norm has two names: the converter's, which files are written with, and
// another.
constexpr Name kShort[] = {{"shortconv.in_proj", "conv.in_proj"},
                           {"shortconv.out_proj", "conv.out_proj"},
                           {"shortconv.conv", "conv.conv"}};
constexpr Name kShortModel[] = {{"token_embd", "model.embed_tokens"},
                                {"token_embd_norm", "model.norm"},
                                {"output_norm", "model.norm"},
                                {"output", "lm_head"}};
// Of Granite 4.
constexpr Name kScan[] = {{"ssm_in", "mamba.in_proj"},
                          {"ssm_conv1d", "mamba.conv1d"},
                          {"ssm_norm", "mamba.norm"},
                          {"ssm_out", "mamba.out_proj"}};
constexpr Name kScanWhole[] = {
    {"ssm_a", "mamba.A_log"}, {"ssm_d", "mamba.D"}, {"ssm_dt.bias", "mamba.dt_bias"}};
// In a layer with two norms the second is the MLP's; with four, it has a name of its own.
constexpr Name kTwoNorms[] = {{"ffn_norm", "post_attention_layernorm"}};
constexpr Name kFourNorms[] = {{"post_attention_norm", "post_attention_layernorm"},
                               {"ffn_norm", "pre_feedforward_layernorm"},
                               {"post_ffw_norm", "post_feedforward_layernorm"}};

// The names of an architecture's tensors in both formats; those of layers follow the layer's
// number.
struct Names {
    std::span<const Name> model = kModel;
    std::vector<Name> layer;
    std::vector<Name> whole; // of layers, with their endings
    std::string mtp_block;   // of the MTP head: "blk.24."
    std::string mtp_layer;   // as if it were a layer of the plan: "model.layers.24."

    explicit Names(const Config &config)
        : mtp_block("blk." + std::to_string(config.layers) + "."),
          mtp_layer("model.layers." + std::to_string(config.layers) + ".") {
        const auto add = [&](std::span<const Name> names) {
            layer.insert(layer.end(), names.begin(), names.end());
        };
        if (config.fused_tensors) {
            add(kFused); // before the other meaning of ffn_up
        }
        add(kLayer);
        if (config.experts.count != 0) {
            add(kExperts);
        }
        if (config.recurrent.short_convolutions()) {
            model = kShortModel;
            add(kShort);
            add(kTwoNorms);
        } else if (config.recurrent.scan) {
            add(kScan);
            add(kTwoNorms);
            whole.assign(std::begin(kScanWhole), std::end(kScanWhole));
        } else if (config.recurrent.value_heads != 0) {
            add(kRecurrent);
            whole.assign(std::begin(kRecurrentWhole), std::end(kRecurrentWhole));
        } else if (config.attention_sinks) {
            add(kSinkNorms);
            whole.assign(std::begin(kSinks), std::end(kSinks));
        } else {
            config.post_norms ? add(kFourNorms) : add(kTwoNorms);
        }
        const auto add_whole = [&](std::span<const Name> names) {
            whole.insert(whole.end(), names.begin(), names.end());
        };
        if (config.layer_inputs != 0) {
            model = kInputsModel;
        }
        if (config.layer_inputs != 0 || config.experts.beside_mlp) {
            add(kGemma4Names);
        }
        if (config.experts.beside_mlp) {
            add_whole(kBesideMlp);
        }
        if (config.layer_scalars) {
            add_whole(kLayerScalar);
        }
    }

    // Returns the name in the other format; empty if there is none.
    std::string translate(const std::string &name, const char *Name::*from, const char *from_layer,
                          const char *Name::*to, const char *to_layer) const {
        const auto find = [from](std::span<const Name> names, std::string_view called) {
            const auto found = std::find_if(names.begin(), names.end(), [&](const Name &entry) {
                return called == entry.*from;
            });
            return found == names.end() ? nullptr : &*found;
        };
        std::string_view stem = name;
        std::string prefix;
        std::span<const Name> names = model;
        // A name of a layer is a prefix, a number and a name of the list.
        if (stem.starts_with(from_layer)) {
            stem.remove_prefix(std::strlen(from_layer));
            const std::string number(stem.substr(0, stem.find('.')));
            stem.remove_prefix(std::min(stem.size(), number.size() + 1));
            prefix = to_layer + number + ".";
            names = layer;
            if (const Name *found = find(whole, stem)) {
                return prefix + found->*to;
            }
        }
        const size_t dot = std::min(stem.rfind('.'), stem.size());
        const std::string ending(stem.substr(dot));
        const Name *found = find(names, stem.substr(0, dot));
        const bool known = found != nullptr && (ending == ".weight" || ending == ".bias");
        return known ? prefix + found->*to + ending : "";
    }
    std::string in_plan(const std::string &gguf) const {
        return translate(gguf, &Name::gguf, "blk.", &Name::plan, "model.layers.");
    }
    // Returns the name of a tensor of the MTP head's block.
    std::string mtp_in_plan(const std::string &gguf) const {
        for (const Name &entry : kMtp) {
            if (gguf == mtp_block + entry.gguf) {
                return entry.plan;
            }
        }
        const std::string planned = in_plan(gguf);
        return planned.empty() ? "" : kLayerOfMtp + planned.substr(mtp_layer.size());
    }
    std::string in_gguf(std::string plan) const {
        for (const Name &entry : kMtp) {
            if (plan == entry.plan) {
                return mtp_block + entry.gguf;
            }
        }
        if (plan.starts_with(kLayerOfMtp)) {
            plan.replace(0, sizeof kLayerOfMtp - 1, mtp_layer);
        }
        // An expert's number is not part of its tensor's name.
        const size_t experts = plan.find(kExpertsOfLayer);
        if (experts != std::string::npos) {
            const size_t number = experts + sizeof kExpertsOfLayer - 1;
            plan.erase(number, plan.find('.', number) + 1 - number);
        }
        return translate(plan, &Name::plan, "model.layers.", &Name::gguf, "blk.");
    }
};

// Reports whether a tensor is of a block after the layers, that is, of an MTP head.
bool predicts(const GgufFile &file, const Config &config, const std::string &name) {
    if (config.recurrent.value_heads == 0) {
        return false; // no other architecture's layers are counted without them
    }
    const std::string architecture = file.text("general.architecture").value_or("");
    const uint64_t blocks = file.integer(architecture + "." + kGgufPredicting).value_or(0);
    for (uint64_t block = config.layers; block < config.layers + blocks; ++block) {
        if (name.starts_with("blk." + std::to_string(block) + ".")) {
            return true;
        }
    }
    return false;
}

std::optional<DataType> data_type(GgufType type) {
    switch (type) {
    case GgufType::f32:
        return DataType::f32;
    case GgufType::f16:
        return DataType::f16;
    case GgufType::bf16:
        return DataType::bf16;
    case GgufType::q8_0:
        return DataType::q8_0;
    case GgufType::q4_0:
        return DataType::q4_0;
    case GgufType::q4_1:
        return DataType::q4_1;
    case GgufType::q5_0:
        return DataType::q5_0;
    case GgufType::q5_1:
        return DataType::q5_1;
    case GgufType::q4_k:
        return DataType::q4_k;
    case GgufType::q5_k:
        return DataType::q5_k;
    case GgufType::q6_k:
        return DataType::q6_k;
    case GgufType::q2_k:
        return DataType::q2_k;
    case GgufType::q3_k:
        return DataType::q3_k;
    case GgufType::iq4_nl:
        return DataType::iq4_nl;
    case GgufType::iq4_xs:
        return DataType::iq4_xs;
    case GgufType::mxfp4:
        return DataType::mxfp4;
    }
    return std::nullopt;
}

} // namespace

// Reports whether a tensor is of a dense layer behind the model.
static bool is_dense(const std::string &name) {
    return std::any_of(std::begin(kGgufDense), std::end(kGgufDense),
                       [&](const char *dense) { return name == std::string(dense) + ".weight"; });
}

Checkpoint checkpoint_of(const GgufFile &file, const Config &config) {
    const Names names(config);
    Checkpoint checkpoint;
    checkpoint.files = file.files;
    checkpoint.description = "the metadata";
    checkpoint.name_in_file = [names](const std::string &plan) {
        const std::string name = names.in_gguf(plan);
        return name.empty() ? plan : name;
    };

    // The factors of RoPE are part of the config, which has read them from this tensor.
    const bool factors = family_of(config).gguf_lists ||
                         std::any_of(config.ropes.begin(), config.ropes.end(),
                                     [](const Rope &rope) { return !rope.factors.empty(); });
    const bool is_long = config.long_rope_from() != 0;
    const bool mtp =
        config.mtp_layers == 1 && file.tensors.count(names.mtp_block + kMtp[0].gguf) != 0;
    for (const auto &[name, entry] : file.tensors) {
        if (is_long ? name == kGgufShortFactors || name == kGgufLongFactors
                    : factors && name == kGgufRopeFactors) {
            continue;
        }
        if (is_dense(name)) {
            continue; // behind the model (embedding_rules.h)
        }
        const std::string &where = file.names[entry.file];
        const bool in_head = predicts(file, config, name);
        const std::string planned = !in_head ? names.in_plan(name)
                                    : mtp    ? names.mtp_in_plan(name)
                                             : "";
        if (in_head && planned.empty()) { // not used, whatever its type
            checkpoint.refused["mtp." + name] = gguf_type_name(entry.type);
            continue;
        }
        if (planned.empty()) {
            fail(Status::unsupported, "tensor %s in %s is not part of the architecture %s",
                 name.c_str(), where.c_str(), config.architecture.c_str());
        }
        const GgufTensor &tensor = file.tensor(name);
        std::vector<uint64_t> shape(tensor.shape.rbegin(), tensor.shape.rend());
        if (name.ends_with(".ffn_gate_inp_shexp.weight") && shape.size() == 1) {
            shape.insert(shape.begin(), 1); // a matrix of one row, which GGUF has as a vector
        }
        const bool convolution =
            planned.ends_with(".conv1d.weight") || planned.ends_with(".conv.conv.weight");
        if (convolution && shape.size() == 2) {
            shape.insert(shape.begin() + 1, 1); // the plan's [channels][1][taps]
        }
        for (const char *vector : {".mamba.A_log", ".mamba.D", ".mamba.norm.weight"}) {
            if (planned.ends_with(vector) && shape.size() == 2 &&
                (shape[0] == 1 || shape[1] == 1)) {
                shape = {shape[0] * shape[1]}; // which GGUF has as matrices
            }
        }
        checkpoint.tensors[planned] = {*data_type(tensor.type),
                                       shape,
                                       tensor.offset_bytes,
                                       static_cast<size_t>(tensor.size_bytes),
                                       where,
                                       file.files[tensor.file].get()};
    }
    return checkpoint;
}

std::string gguf_name(const std::string &planned, const Config &config) {
    return Names(config).in_gguf(planned);
}

} // namespace stasis
