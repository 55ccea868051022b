// Lists the tensors of a model; see weights_plan.h.
#include "runtime/model/weights_plan.h"

#include "runtime/model/weights_find.h"

namespace stasis {

namespace {

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
    void beside_mlp(const std::string &name, uint32_t layer, ExpertWeights &place) const;
    void attention(const std::string &name, uint32_t index, const LayerConfig &kind,
                   LayerWeights &place) const;
    void head_norms(const std::string &name, const LayerConfig &kind, LayerWeights &place) const;
    void inputs(const std::string &name, uint32_t index, LayerInputWeights &place) const;
    void recurrent(const std::string &name, uint32_t index, RecurrentWeights &place) const;
    void short_convolution(const std::string &name, uint32_t index, RecurrentWeights &place) const;
    void scan(const std::string &name, uint32_t index, RecurrentWeights &place) const;
    void layer(const std::string &name, uint32_t index, const LayerConfig &kind,
               LayerWeights &place) const;
    void layer_inputs(LayerInputs &place) const;
    void mtp(MtpWeights &place) const;
};

// The experts of a layer, each with tensors of its own (split_experts).
void Planner::experts(const std::string &mlp, uint32_t layer, ExpertWeights &place) const {
    const Experts &sizes = config.experts;
    linear(mlp + "gate", sizes.count, config.hidden, sizes.router_bias, WeightGroup::mlp, layer,
           place.router);
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

// What a layer with one MLP and experts has beyond both (rename_tensors gives these names).
void Planner::beside_mlp(const std::string &name, uint32_t layer, ExpertWeights &place) const {
    const uint64_t hidden = config.hidden;
    vector(name + "mlp.gate.scale", hidden, WeightGroup::mlp, layer, place.router_scale);
    vector(name + "mlp.gate.per_expert_scale", config.experts.count, WeightGroup::mlp, layer,
           place.scales);
    norm(name + "post_feedforward_layernorm_1", hidden, place.post_mlp_norm);
    norm(name + "pre_feedforward_layernorm_2", hidden, place.norm);
    norm(name + "post_feedforward_layernorm_2", hidden, place.post_norm);
}

void Planner::attention(const std::string &name, uint32_t index, const LayerConfig &kind,
                        LayerWeights &place) const {
    const uint64_t hidden = config.hidden, head_dim = config.head_dim_of(kind);
    const uint64_t query_size = config.heads * head_dim;
    const uint64_t key_size = config.kv_heads_of(kind) * head_dim;
    const auto attend = [&](const char *part, uint64_t rows, uint64_t columns, bool biased,
                            Matrix &matrix) {
        linear(name + part, rows, columns, biased, WeightGroup::attention, index, matrix);
    };
    attend("q_proj", (config.output_gate ? 2 : 1) * query_size, hidden, config.attention_bias,
           place.query);
    if (kind.own_keys()) {
        attend("k_proj", key_size, hidden, config.attention_bias, place.key);
    }
    if (kind.own_keys() && !config.keys_as_values(kind)) {
        attend("v_proj", key_size, hidden, config.attention_bias, place.value);
    }
    attend("o_proj", hidden, query_size, config.output_bias, place.output);
    if (config.attention_sinks) {
        vector(name + "sinks", config.heads, WeightGroup::attention, index, place.sinks);
    }
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

// B, C and x, the convolution of B * x, and what C times its results are multiplied by.
void Planner::short_convolution(const std::string &name, uint32_t index,
                                RecurrentWeights &place) const {
    constexpr WeightGroup kGroup = WeightGroup::attention;
    const uint64_t channels = config.recurrent.channels();
    linear(name + "in_proj", 3 * channels, config.hidden, false, kGroup, index, place.input);
    linear(name + "out_proj", config.hidden, channels, false, kGroup, index, place.output);
    vector(name + "conv.weight", channels, kGroup, index, place.convolution, Stored::by_channel);
    plan.back().shape = {channels, 1, config.recurrent.taps};
}

// Mamba-2.
void Planner::scan(const std::string &name, uint32_t index, RecurrentWeights &place) const {
    constexpr WeightGroup kGroup = WeightGroup::attention;
    const Recurrent &sizes = config.recurrent;
    const uint64_t heads = sizes.value_heads, channels = sizes.channels();
    linear(name + "in_proj", sizes.product_size(), config.hidden, false, kGroup, index,
           place.input);
    linear(name + "out_proj", config.hidden, sizes.value_size(), false, kGroup, index,
           place.output);
    vector(name + "conv1d.weight", channels, kGroup, index, place.convolution, Stored::by_channel);
    plan.back().shape = {channels, 1, sizes.taps};
    if (sizes.convolution_bias) {
        vector(name + "conv1d.bias", channels, kGroup, index, place.convolution_bias);
    }
    vector(name + "A_log", heads, kGroup, index, place.rate,
           sizes.stored_rates ? Stored::as_read : Stored::log_rate);
    vector(name + "dt_bias", heads, kGroup, index, place.bias);
    vector(name + "D", heads, kGroup, index, place.skip);
    vector(name + "norm.weight", sizes.value_size(), kGroup, index, place.norm);
}

void Planner::layer(const std::string &name, uint32_t index, const LayerConfig &kind,
                    LayerWeights &place) const {
    const std::string self = name + "self_attn.";
    const std::string mlp = name + "mlp.";
    const uint64_t hidden = config.hidden;
    if (kind.recurrent && config.recurrent.short_convolutions()) {
        short_convolution(name + "conv.", index, place.recurrent);
    } else if (kind.recurrent && config.recurrent.scan) {
        scan(name + "mamba.", index, place.recurrent);
    } else if (kind.recurrent) {
        recurrent(name + "linear_attn.", index, place.recurrent);
    } else {
        attention(self, index, kind, place);
    }
    if (kind.experts) {
        experts(mlp, index, place.experts);
    }
    if (!kind.experts || config.experts.beside_mlp) {
        gated(mlp, config.intermediate_of(kind), index, place.mlp);
    }

    if (config.pre_norms) {
        norm(name + "input_layernorm", hidden, place.attention_norm);
    }
    if (config.post_norms) {
        norm(name + "post_attention_layernorm", hidden, place.post_attention_norm);
        if (config.pre_norms) {
            norm(name + "pre_feedforward_layernorm", hidden, place.mlp_norm);
        }
        norm(name + "post_feedforward_layernorm", hidden, place.post_mlp_norm);
    } else {
        // In a layer with two norms, the one named after attention is before the MLP.
        norm(name + "post_attention_layernorm", hidden, place.mlp_norm);
    }
    if (config.query_key_norm && !kind.recurrent) {
        head_norms(self, kind, place);
    }
    if (kind.experts && config.experts.beside_mlp) {
        beside_mlp(name, index, place.experts);
    }
    if (config.layer_inputs != 0) {
        inputs(name, index, place.inputs);
    }
    if (config.layer_scalars) {
        vector(name + "layer_scalar", 1, WeightGroup::norms, 0, place.scalar);
    }
}

void Planner::head_norms(const std::string &name, const LayerConfig &kind,
                         LayerWeights &place) const {
    const uint64_t head_dim = config.head_dim_of(kind);
    const uint64_t heads = config.joint_norms ? config.heads : 1;
    const uint64_t kv_heads = config.joint_norms ? config.kv_heads_of(kind) : 1;
    norm(name + "q_norm", heads * head_dim, place.query_norm);
    if (kind.own_keys()) {
        norm(name + "k_norm", kv_heads * head_dim, place.key_norm);
    }
}

void Planner::inputs(const std::string &name, uint32_t index, LayerInputWeights &place) const {
    constexpr WeightGroup kGroup = WeightGroup::mlp;
    linear(name + "per_layer_input_gate", config.layer_inputs, config.hidden, false, kGroup, index,
           place.gate);
    linear(name + "per_layer_projection", config.hidden, config.layer_inputs, false, kGroup, index,
           place.output);
    norm(name + "post_per_layer_input_norm", config.hidden, place.post_norm);
}

void Planner::layer_inputs(LayerInputs &place) const {
    constexpr WeightGroup kGroup = WeightGroup::embeddings;
    matrix("embed_tokens_per_layer.weight", config.vocabulary, config.layer_inputs_size(), kGroup,
           0, place.table);
    plan.back().multiplied = false;
    plan.back().lookup = &place.tokens;
    matrix("per_layer_model_projection.weight", config.layer_inputs_size(), config.hidden, kGroup,
           0, place.projection);
    norm("per_layer_projection_norm", config.layer_inputs, place.norm);
}

// The layer's names are those of any layer with attention. The group keeps all of it out of the
// model's identity.
void Planner::mtp(MtpWeights &place) const {
    const size_t first = plan.size();
    const uint64_t hidden = config.hidden;
    matrix(kMtpJoin, hidden, 2 * hidden, WeightGroup::mtp, config.layers, place.join);
    norm("mtp.pre_fc_norm_embedding", hidden, place.embedding_norm);
    norm("mtp.pre_fc_norm_hidden", hidden, place.hidden_norm);
    layer(kMtpLayer, config.layers, mtp_layer(config), place.layer);
    norm("mtp.norm", hidden, place.final_norm);
    for (size_t i = first; i < plan.size(); ++i) {
        plan[i].group = WeightGroup::mtp;
    }
}

} // namespace

std::vector<PlannedTensor> plan_weights(const Config &config, bool mtp, Weights &weights) {
    std::vector<PlannedTensor> plan;
    const Planner planner{config, plan};
    weights.layers.resize(config.layers);
    planner.matrix(kEmbeddings, config.vocabulary, config.hidden, WeightGroup::embeddings, 0,
                   weights.embeddings);
    plan.back().multiplied = config.tied_head;
    if (config.layer_inputs != 0) {
        planner.layer_inputs(weights.inputs);
    }
    for (uint32_t i = 0; i < config.layers; ++i) {
        planner.layer("layers." + std::to_string(i) + ".", i, config.layer[i], weights.layers[i]);
    }
    planner.norm("norm", config.hidden, weights.final_norm);
    if (!config.tied_head) {
        planner.matrix(kHead, config.vocabulary, config.hidden, WeightGroup::head, 0, weights.head);
    }
    if (mtp) {
        planner.mtp(weights.mtp);
    }
    return plan;
}

} // namespace stasis
