// The tensors of the published shapes; see shapes.h. They follow from a shape's config.json.
#include "tools/cli/synth/shapes.h"

#include <algorithm>
#include <cmath>

#include "tools/cli/handles.h"
#include "tools/cli/synth/published.h"

namespace command::synth {

namespace {

using Json = nlohmann::ordered_json;

// Lists a model's tensors. Matrices have a deviation of 1 / sqrt(columns), so that outputs are as
// large as inputs and attention is neither flat nor a single peak. Embeddings (and heads) have the
// deviation of the published initialisation, in Gemma a quarter of it: Gemma enlarges embeddings
// and uses them as the head, so that otherwise each token would be its own most likely successor.
// Norms scatter around 1. Recurrent states decay by a tenth at a token, more or less, so that they
// stay as large as what is added to them.
struct Planner {
    std::vector<TensorPlan> &tensors;
    bool gemma;
    bool less_one; // norms are stored as the difference from 1

    void vector(const std::string &name, uint64_t size, double mean, double deviation) const {
        tensors.push_back({name, {size}, mean, deviation});
    }
    void matrix(const std::string &name, uint64_t rows, uint64_t columns) const {
        const double deviation = 1.0 / std::sqrt(static_cast<double>(columns));
        tensors.push_back({name + ".weight", {rows, columns}, 0.0, deviation});
    }
    void vocabulary(const std::string &name, uint64_t rows, uint64_t columns) const {
        tensors.push_back({name + ".weight", {rows, columns}, 0.0, gemma ? 0.005 : 0.02});
    }
    void norm(const std::string &name, uint64_t size) const {
        vector(name + ".weight", size, less_one ? 0.0 : 1.0, 0.05);
    }
};

void plan_mlp(const Planner &plan, const std::string &name, uint64_t hidden, uint64_t inner) {
    plan.matrix(name + "gate_proj", inner, hidden);
    plan.matrix(name + "up_proj", inner, hidden);
    plan.matrix(name + "down_proj", hidden, inner);
}

void plan_recurrent(const Planner &plan, const std::string &name, const Json &text) {
    const uint64_t hidden = text.at("hidden_size"), heads = text.at("linear_num_value_heads");
    const uint64_t value_dim = text.at("linear_value_head_dim"), values = heads * value_dim;
    const uint64_t key_heads = text.at("linear_num_key_heads");
    const uint64_t keys = key_heads * text.at("linear_key_head_dim").get<uint64_t>();
    const uint64_t channels = 2 * keys + values, taps = text.at("linear_conv_kernel_dim");
    plan.matrix(name + "in_proj_qkv", channels, hidden);
    plan.matrix(name + "in_proj_z", values, hidden);
    plan.matrix(name + "in_proj_a", heads, hidden);
    plan.matrix(name + "in_proj_b", heads, hidden);
    plan.matrix(name + "out_proj", hidden, values);
    const double deviation = 1.0 / std::sqrt(static_cast<double>(taps));
    plan.tensors.push_back({name + "conv1d.weight", {channels, 1, taps}, 0.0, deviation});
    plan.vector(name + "A_log", heads, 0.0, 0.5);
    plan.vector(name + "dt_bias", heads, -2.0, 0.5);
    plan.vector(name + "norm.weight", value_dim, 1.0, 0.05);
}

// The experts of gpt-oss in MXFP4, whose values have a deviation of 2.93 at an exponent of 127, and
// what else its layers have.
void plan_gpt_oss(const Planner &plan, const std::string &name, const Json &text) {
    const uint64_t hidden = text.at("hidden_size"), inner = text.at("intermediate_size");
    const uint64_t count = text.at("num_local_experts"), block = 32;
    const std::string mlp = name + "mlp.", experts = mlp + "experts.";
    const auto mxfp4 = [&](const std::string &stem, uint64_t rows, uint64_t columns) {
        const double exponent = std::log2(1.0 / std::sqrt(static_cast<double>(columns)) / 2.93);
        const double least = 127.0 + std::floor(exponent);
        plan.tensors.push_back({stem + "_blocks", {count, rows, columns / block, 16}, 0.0, 0.0, 8});
        plan.tensors.push_back({stem + "_scales", {count, rows, columns / block}, least, 0.0, 1});
        plan.tensors.push_back({stem + "_bias", {count, rows}, 0.0, 0.02});
    };
    plan.matrix(mlp + "router", count, hidden);
    plan.vector(mlp + "router.bias", count, 0.0, 0.02);
    mxfp4(experts + "gate_up_proj", 2 * inner, hidden);
    mxfp4(experts + "down_proj", hidden, inner);
    const uint64_t heads = text.at("num_attention_heads"), head_dim = text.at("head_dim");
    const uint64_t key_size = text.at("num_key_value_heads").get<uint64_t>() * head_dim;
    plan.vector(name + "self_attn.sinks", heads, 0.0, 1.0);
    plan.vector(name + "self_attn.q_proj.bias", heads * head_dim, 0.0, 0.02);
    plan.vector(name + "self_attn.k_proj.bias", key_size, 0.0, 0.02);
    plan.vector(name + "self_attn.v_proj.bias", key_size, 0.0, 0.02);
    plan.vector(name + "self_attn.o_proj.bias", hidden, 0.0, 0.02);
}

void plan_attention(const Planner &plan, const std::string &name, const Json &text) {
    const uint64_t hidden = text.at("hidden_size");
    // Absent fields have Gemma 3's default sizes and Llama's head_dim.
    const uint64_t heads = text.value("num_attention_heads", 8);
    const uint64_t head_dim = text.value("head_dim", plan.gemma ? 256 : hidden / heads);
    const uint64_t query_size = heads * head_dim;
    const uint64_t key_size = text.value("num_key_value_heads", 4) * head_dim;
    const bool gate = text.value("attn_output_gate", false);
    plan.matrix(name + "q_proj", (gate ? 2 : 1) * query_size, hidden);
    plan.matrix(name + "k_proj", key_size, hidden);
    plan.matrix(name + "v_proj", key_size, hidden);
    plan.matrix(name + "o_proj", hidden, query_size);
}

// A layer of Gemma 4, whose sizes depend on its kind. The last layers have no keys and values.
void plan_gemma4(const Planner &plan, const std::string &name, uint64_t index, const Json &text) {
    const uint64_t hidden = text.at("hidden_size"), inputs = text.at("hidden_size_per_layer_input");
    const uint64_t own = text.at("num_hidden_layers").get<uint64_t>() -
                         text.at("num_kv_shared_layers").get<uint64_t>();
    const bool global = text.at("layer_types")[index] == "full_attention";
    const uint64_t head_dim = text.at(global ? "global_head_dim" : "head_dim");
    const uint64_t query_size = text.at("num_attention_heads").get<uint64_t>() * head_dim;
    const uint64_t key_size = text.at("num_key_value_heads").get<uint64_t>() * head_dim;
    const std::string attention = name + "self_attn.";
    plan.norm(name + "input_layernorm", hidden);
    plan.matrix(attention + "q_proj", query_size, hidden);
    plan.norm(attention + "q_norm", head_dim);
    if (index < own) {
        plan.matrix(attention + "k_proj", key_size, hidden);
        plan.matrix(attention + "v_proj", key_size, hidden);
        plan.norm(attention + "k_norm", head_dim);
    }
    plan.matrix(attention + "o_proj", hidden, query_size);
    plan.norm(name + "post_attention_layernorm", hidden);
    plan.norm(name + "pre_feedforward_layernorm", hidden);
    const uint64_t inner = text.at("intermediate_size");
    plan_mlp(plan, name + "mlp.", hidden, index < own ? inner : 2 * inner);
    plan.norm(name + "post_feedforward_layernorm", hidden);
    plan.matrix(name + "per_layer_input_gate", inputs, hidden);
    plan.matrix(name + "per_layer_projection", hidden, inputs);
    plan.norm(name + "post_per_layer_input_norm", hidden);
    plan.vector(name + "layer_scalar", 1, 1.0, 0.05);
}

// What Gemma 4 has beside its layers: the numbers that they get of each token.
void plan_layer_inputs(const Planner &plan, const std::string &prefix, const Json &text) {
    const uint64_t inputs = text.at("hidden_size_per_layer_input");
    const uint64_t all = inputs * text.at("num_hidden_layers").get<uint64_t>();
    plan.vocabulary(prefix + "embed_tokens_per_layer", text.at("vocab_size"), all);
    plan.matrix(prefix + "per_layer_model_projection", all, text.at("hidden_size"));
    plan.norm(prefix + "per_layer_projection_norm", inputs);
}

void plan_head_norms(const Planner &plan, const std::string &name, const Json &text) {
    const uint64_t head_dim = text.value("head_dim", 256);
    plan.norm(name + "q_norm", head_dim);
    plan.norm(name + "k_norm", head_dim);
}

// A layer of LFM2, whose MLP is two thirds of what the config says, in multiples.
void plan_lfm2(const Planner &plan, const std::string &name, bool convolves, const Json &text) {
    const uint64_t hidden = text.at("hidden_size"), taps = text.at("conv_L_cache");
    const uint64_t multiple = text.at("block_multiple_of");
    const uint64_t least = 2 * text.at("block_ff_dim").get<uint64_t>() / 3;
    const uint64_t inner = (least + multiple - 1) / multiple * multiple;
    plan.norm(name + "operator_norm", hidden);
    if (convolves) {
        plan.matrix(name + "conv.in_proj", 3 * hidden, hidden);
        const double deviation = 1.0 / std::sqrt(static_cast<double>(taps));
        plan.tensors.push_back({name + "conv.conv.weight", {hidden, 1, taps}, 0.0, deviation});
        plan.matrix(name + "conv.out_proj", hidden, hidden);
    } else {
        const uint64_t head_dim = hidden / text.at("num_attention_heads").get<uint64_t>();
        const uint64_t keys = head_dim * text.at("num_key_value_heads").get<uint64_t>();
        plan.matrix(name + "self_attn.q_proj", hidden, hidden);
        plan.matrix(name + "self_attn.k_proj", keys, hidden);
        plan.matrix(name + "self_attn.v_proj", keys, hidden);
        plan.matrix(name + "self_attn.out_proj", hidden, hidden);
        plan.norm(name + "self_attn.q_layernorm", head_dim);
        plan.norm(name + "self_attn.k_layernorm", head_dim);
    }
    plan.norm(name + "ffn_norm", hidden);
    plan.matrix(name + "feed_forward.w1", inner, hidden);
    plan.matrix(name + "feed_forward.w3", inner, hidden);
    plan.matrix(name + "feed_forward.w2", hidden, inner);
}

void plan_layer(const Planner &plan, const std::string &name, bool recurrent, const Json &text) {
    const uint64_t hidden = text.at("hidden_size");
    plan.norm(name + "input_layernorm", hidden);
    if (recurrent) {
        plan_recurrent(plan, name + "linear_attn.", text);
    } else {
        plan_attention(plan, name + "self_attn.", text);
    }
    plan.norm(name + "post_attention_layernorm", hidden);
    const std::string type = text.at("model_type");
    if (!recurrent && (plan.gemma || type.starts_with("qwen3"))) {
        plan_head_norms(plan, name + "self_attn.", text);
    }
    if (plan.gemma) {
        plan.norm(name + "pre_feedforward_layernorm", hidden);
        plan.norm(name + "post_feedforward_layernorm", hidden);
    }
    if (type == "gpt_oss") {
        plan_gpt_oss(plan, name, text);
        return;
    }
    const uint64_t experts = text.value("num_experts", 0);
    if (experts == 0) {
        plan_mlp(plan, name + "mlp.", hidden, text.at("intermediate_size"));
        return;
    }
    plan.matrix(name + "mlp.gate", experts, hidden);
    for (uint64_t i = 0; i < experts; ++i) {
        plan_mlp(plan, name + "mlp.experts." + std::to_string(i) + ".", hidden,
                 text.at("moe_intermediate_size"));
    }
}

// The layer that predicts further tokens, where the config says that there is one.
void plan_mtp(const Planner &plan, const Json &text) {
    const uint64_t hidden = text.at("hidden_size");
    if (text.value("mtp_num_hidden_layers", 0) == 0) {
        return;
    }
    plan.matrix("mtp.fc", hidden, 2 * hidden);
    plan.norm("mtp.pre_fc_norm_embedding", hidden);
    plan.norm("mtp.pre_fc_norm_hidden", hidden);
    plan_layer(plan, "mtp.layers.0.", false, text);
    plan.norm("mtp.norm", hidden);
}

// Cuts the model to its first layers, and says of a hybrid's which are of which kind.
void set_layers(const std::string &name, uint64_t layers, Json &text) {
    const uint64_t all = text.at("num_hidden_layers");
    if (layers > all) {
        throw Failure("--layers: " + name + " has " + std::to_string(all));
    }
    if (layers != 0) {
        text["num_hidden_layers"] = layers;
        if (text.contains("layer_types")) {
            Json &kinds = text["layer_types"];
            kinds.erase(kinds.begin() + static_cast<ptrdiff_t>(layers), kinds.end());
        }
        if (text.contains("num_kv_shared_layers")) { // the first layers stay what they are
            const uint64_t own = all - text["num_kv_shared_layers"].get<uint64_t>();
            text["num_kv_shared_layers"] = layers > own ? layers - own : 0;
        }
    }
    if (text.contains("full_attn_idxs")) {
        Json kept = Json::array();
        for (const Json &layer : text["full_attn_idxs"]) {
            if (layer < text["num_hidden_layers"]) {
                kept.push_back(layer);
            }
        }
        if (kept.empty()) {
            throw Failure("--layers: " + name + " has attention from layer " +
                          std::to_string(text["full_attn_idxs"][0].get<uint64_t>() + 1) + " on");
        }
        text["full_attn_idxs"] = kept;
    }
    if (text.contains("full_attention_interval")) {
        const uint64_t interval = text["full_attention_interval"];
        for (uint64_t i = 1; i <= text["num_hidden_layers"]; ++i) {
            text["layer_types"].push_back(i % interval == 0 ? "full_attention"
                                                            : "linear_attention");
        }
    }
}

Shape make_shape(const std::string &name, uint64_t layers, const char *config) {
    Shape shape{name, name.starts_with("gemma"), Json::parse(config), 0, {}};
    const bool multimodal = shape.config.contains("text_config");
    Json &text = multimodal ? shape.config.at("text_config") : shape.config;
    set_layers(name, layers, text);
    const bool hybrid = text.contains("full_attention_interval");
    const bool convolving = text.contains("full_attn_idxs");
    const bool gemma4 = text.at("model_type") == "gemma4_text";
    const std::string prefix = !multimodal        ? "model."
                               : hybrid || gemma4 ? "model.language_model."
                                                  : "language_model.model.";
    const uint64_t hidden = text.at("hidden_size");
    const Planner plan{shape.tensors, shape.gemma, (shape.gemma && !gemma4) || hybrid};
    shape.vocabulary = text.value("vocab_size", 262208);
    plan.vocabulary(prefix + "embed_tokens", shape.vocabulary, hidden);
    if (gemma4) {
        plan_layer_inputs(plan, prefix, text);
    }
    for (size_t layer = 0; layer < text.at("num_hidden_layers"); ++layer) {
        const std::string name = prefix + "layers." + std::to_string(layer) + ".";
        if (gemma4) {
            plan_gemma4(plan, name, layer, text);
            continue;
        }
        if (convolving) {
            const Json &attention = text.at("full_attn_idxs");
            const bool attends =
                std::find(attention.begin(), attention.end(), layer) != attention.end();
            plan_lfm2(plan, name, !attends, text);
            continue;
        }
        const bool recurrent = hybrid && text.at("layer_types")[layer] == "linear_attention";
        plan_layer(plan, name, recurrent, text);
    }
    plan.norm(prefix + (convolving ? "embedding_norm" : "norm"), hidden);
    if (!text.value("tie_word_embeddings", shape.gemma || convolving)) {
        plan.vocabulary("lm_head", shape.vocabulary, hidden);
    }
    plan_mtp(plan, text);
    return shape;
}

} // namespace

uint64_t TensorPlan::elements() const {
    uint64_t count = 1;
    for (const uint64_t dimension : shape) {
        count *= dimension;
    }
    return count;
}

std::string shape_names() {
    std::string names;
    for (const Published &each : published()) {
        names += (names.empty() ? "" : ", ") + std::string(each.name);
    }
    return names;
}

Shape find_shape(const std::string &name, uint64_t layers) {
    for (const Published &each : published()) {
        if (name == each.name) {
            return make_shape(name, layers, each.config);
        }
    }
    throw Failure("SHAPE: '" + name + "' is not one of " + shape_names());
}

} // namespace command::synth
