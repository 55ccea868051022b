// The published shapes; see shapes.h. Each config.json is the published one of the checkpoint of
// that name (google/gemma-3-*, meta-llama/Llama-3.2-1B, TinyLlama/TinyLlama-1.1B), except for the
// ids of special tokens, which are those of the bundled tokenizer.
#include "tools/cli/synth/shapes.h"

#include <cmath>

#include "tools/cli/handles.h"

namespace command::synth {

namespace {

using Json = nlohmann::ordered_json;

constexpr char kTinyLlama[] = R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false,
    "bos_token_id": 1, "eos_token_id": [2, 4], "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 5632, "max_position_embeddings": 2048,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 22,
    "num_key_value_heads": 4, "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": null,
    "rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
    "use_cache": true, "vocab_size": 32000})";

constexpr char kLlama1b[] = R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 1, "eos_token_id": [2, 4], "head_dim": 64, "hidden_act": "silu",
    "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
    "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0,
    "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3"}, "rope_theta": 500000.0, "tie_word_embeddings": true,
    "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 128256})";

constexpr char kGemma270m[] = R"({
    "_sliding_window_pattern": 6, "architectures": ["Gemma3ForCausalLM"],
    "attention_bias": false, "attention_dropout": 0.0, "attn_logit_softcapping": null,
    "bos_token_id": 2, "eos_token_id": [1, 5], "final_logit_softcapping": null,
    "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 640,
    "initializer_range": 0.02, "intermediate_size": 2048, "layer_types": ["sliding_attention",
    "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
    "full_attention", "sliding_attention", "sliding_attention", "sliding_attention",
    "sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
    "sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
    "full_attention"], "max_position_embeddings": 32768, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 18, "num_key_value_heads": 1,
    "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000.0, "rope_scaling": null, "rope_theta": 1000000.0,
    "sliding_window": 512, "torch_dtype": "bfloat16", "use_bidirectional_attention": false,
    "use_cache": true, "vocab_size": 262144})";

constexpr char kGemma1b[] = R"({
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "attn_logit_softcapping": null, "bos_token_id": 2, "cache_implementation": "hybrid",
    "eos_token_id": [1, 5], "final_logit_softcapping": null, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "initializer_range": 0.02,
    "intermediate_size": 6912, "max_position_embeddings": 32768, "model_type": "gemma3_text",
    "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
    "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_local_base_freq": 10000, "rope_scaling": null, "rope_theta": 1000000,
    "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
    "use_cache": true, "vocab_size": 262144})";

constexpr char kGemma4b[] = R"({
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999,
    "bos_token_id": 2, "eoi_token_index": 256000, "eos_token_id": [1, 5],
    "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 256,
    "model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
    "model_type": "gemma3_text", "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0,
    "rope_type": "linear"}, "sliding_window": 1024}, "torch_dtype": "bfloat16",
    "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
    "model_type": "siglip_vision_model", "num_attention_heads": 16, "num_hidden_layers": 27,
    "patch_size": 14, "vision_use_head": false}})";

constexpr struct {
    const char *name;
    const char *config;
} kPublished[] = {
    {"tinyllama-1.1b", kTinyLlama}, {"llama3.2-1b", kLlama1b}, {"gemma3-270m", kGemma270m},
    {"gemma3-1b", kGemma1b},        {"gemma3-4b", kGemma4b},
};

// Lists a model's tensors. Matrices have a deviation of 1 / sqrt(columns), so that outputs are as
// large as inputs and attention is neither flat nor a single peak. Embeddings (and heads) have the
// deviation of the published initialisation, in Gemma a quarter of it: Gemma enlarges embeddings
// and uses them as the head, so that otherwise each token would be its own most likely successor.
// Norms scatter around 1.
struct Planner {
    std::vector<TensorPlan> &tensors;
    bool gemma;

    void matrix(const std::string &name, uint64_t rows, uint64_t columns) const {
        const double deviation = 1.0 / std::sqrt(static_cast<double>(columns));
        tensors.push_back({name + ".weight", {rows, columns}, 0.0, deviation});
    }
    void vocabulary(const std::string &name, uint64_t rows, uint64_t columns) const {
        tensors.push_back({name + ".weight", {rows, columns}, 0.0, gemma ? 0.005 : 0.02});
    }
    void norm(const std::string &name, uint64_t size) const {
        // Gemma stores the difference from 1.
        tensors.push_back({name + ".weight", {size}, gemma ? 0.0 : 1.0, 0.05});
    }
};

void plan_layer(const Planner &plan, const std::string &name, const Json &text) {
    const uint64_t hidden = text.at("hidden_size"), inner = text.at("intermediate_size");
    // Absent fields have Gemma 3's default sizes and Llama's head_dim.
    const uint64_t heads = text.value("num_attention_heads", 8);
    const uint64_t head_dim = text.value("head_dim", plan.gemma ? 256 : hidden / heads);
    const uint64_t query_size = heads * head_dim;
    const uint64_t key_size = text.value("num_key_value_heads", 4) * head_dim;

    plan.norm(name + "input_layernorm", hidden);
    plan.matrix(name + "self_attn.q_proj", query_size, hidden);
    plan.matrix(name + "self_attn.k_proj", key_size, hidden);
    plan.matrix(name + "self_attn.v_proj", key_size, hidden);
    plan.matrix(name + "self_attn.o_proj", hidden, query_size);
    plan.norm(name + "post_attention_layernorm", hidden);
    if (plan.gemma) {
        plan.norm(name + "self_attn.q_norm", head_dim);
        plan.norm(name + "self_attn.k_norm", head_dim);
        plan.norm(name + "pre_feedforward_layernorm", hidden);
        plan.norm(name + "post_feedforward_layernorm", hidden);
    }
    plan.matrix(name + "mlp.gate_proj", inner, hidden);
    plan.matrix(name + "mlp.up_proj", inner, hidden);
    plan.matrix(name + "mlp.down_proj", hidden, inner);
}

Shape make_shape(const std::string &name, const char *config) {
    Shape shape{name, name.starts_with("gemma"), Json::parse(config), 0, {}};
    const bool multimodal = shape.config.contains("text_config");
    const Json &text = multimodal ? shape.config.at("text_config") : shape.config;
    const std::string prefix = multimodal ? "language_model.model." : "model.";
    const uint64_t hidden = text.at("hidden_size");
    const Planner plan{shape.tensors, shape.gemma};
    shape.vocabulary = text.value("vocab_size", 262208);
    plan.vocabulary(prefix + "embed_tokens", shape.vocabulary, hidden);
    for (int layer = 0; layer < text.at("num_hidden_layers"); ++layer) {
        plan_layer(plan, prefix + "layers." + std::to_string(layer) + ".", text);
    }
    plan.norm(prefix + "norm", hidden);
    if (!text.value("tie_word_embeddings", shape.gemma)) {
        plan.vocabulary("lm_head", shape.vocabulary, hidden);
    }
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
    for (const auto &published : kPublished) {
        names += (names.empty() ? "" : ", ") + std::string(published.name);
    }
    return names;
}

Shape find_shape(const std::string &name) {
    for (const auto &published : kPublished) {
        if (name == published.name) {
            return make_shape(name, published.config);
        }
    }
    throw Failure("SHAPE: '" + name + "' is not one of " + shape_names());
}

} // namespace command::synth
