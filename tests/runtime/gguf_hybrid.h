// A bundled hybrid of Gated DeltaNet and attention as a GGUF file, as llama.cpp's converter stores
// Qwen3.5: value heads tiled, rates in place of A_log, norms with their one. For tests; says
// independently of the product what the same model is in either format.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/kernels/math.h"
#include "tests/runtime/gguf_model.h"
#include "tests/runtime/quantized_model.h"

namespace stasis::test {

struct GgufHybrid {
    explicit GgufHybrid(const std::string &directory)
        : config(read_config(directory)), tensors(read_tensors_of(directory)) {}

    Config config;
    StoredTensors tensors;
    std::string architecture = "qwen35";
    bool integers = false;   // matrices of random Q8_0
    std::string integers_of; // of those whose names begin so, if it is not empty
    bool listed = false;     // the recurrent layers one by one
    bool predicting = false; // with a block after the layers: "mtp.", or some tensors if none is

    std::string bytes() const;
    void describe(GgufWriter &writer) const;
    // `name` without the directory's prefix.
    void store(GgufWriter &writer, const std::string &name, const StoredTensor &tensor,
               RandomWeights &random) const;

    // Moves the units of a value head each from the directory's order, by key head, to the file's,
    // where the heads that share a key head are key_heads apart.
    std::string tiled(const std::string &bytes) const {
        const size_t keys = config.recurrent.key_heads, each = config.recurrent.value_heads / keys;
        const size_t unit = bytes.size() / config.recurrent.value_heads;
        std::string out;
        for (size_t i = 0; i < each; ++i) {
            for (size_t key = 0; key < keys; ++key) {
                out.append(bytes, (key * each + i) * unit, unit);
            }
        }
        return out;
    }
};

// "mtp.layers.0.input_layernorm.weight" is "layers.4.input_layernorm.weight" of a model with 4
// layers, and "mtp.fc.weight" is "blk.4.nextn.eh_proj.weight".
inline std::string mtp_as_layer(const std::string &name, uint32_t layers) {
    const std::string layer = std::to_string(layers) + ".";
    const std::pair<std::string, std::string> begins[] = {
        {"mtp.layers.0.", "layers." + layer},
        {"mtp.fc.", "blk." + layer + "nextn.eh_proj."},
        {"mtp.pre_fc_norm_embedding.", "blk." + layer + "nextn.enorm."},
        {"mtp.pre_fc_norm_hidden.", "blk." + layer + "nextn.hnorm."},
        {"mtp.norm.", "blk." + layer + "nextn.shared_head_norm."},
        {"mtp.", "blk." + layer + "nextn."}};
    for (const auto &[from, to] : begins) {
        if (name.starts_with(from)) {
            return to + name.substr(from.size());
        }
    }
    return name;
}

// "layers.3.linear_attn.in_proj_z.weight" is "blk.3.attn_gate.weight".
inline std::string hybrid_name(std::string name) {
    const std::pair<std::string, std::string> changes[] = {
        {"linear_attn.in_proj_qkv", "attn_qkv"},
        {"linear_attn.in_proj_z", "attn_gate"},
        {"linear_attn.in_proj_a", "ssm_alpha"},
        {"linear_attn.in_proj_b", "ssm_beta"},
        {"linear_attn.conv1d", "ssm_conv1d"},
        {"linear_attn.A_log", "ssm_a"},
        {"linear_attn.dt_bias", "ssm_dt.bias"},
        {"linear_attn.norm", "ssm_norm"},
        {"linear_attn.out_proj", "ssm_out"},
        {"post_attention_layernorm", "post_attention_norm"}};
    for (const auto &[from, to] : changes) {
        const size_t at = name.find(from);
        if (at != std::string::npos) {
            name.replace(at, from.size(), to);
        }
    }
    return gguf_name(name == "norm.weight" ? "model.norm.weight" : name, false);
}

inline void GgufHybrid::describe(GgufWriter &writer) const {
    const auto key = [&](const char *name) { return architecture + "." + name; };
    const Recurrent &sizes = config.recurrent;
    writer.text("general.architecture", architecture);
    writer.integer(key("block_count"), config.layers + (predicting ? 1 : 0));
    writer.integer(key("embedding_length"), config.hidden);
    writer.integer(key("attention.head_count"), config.heads);
    writer.integer(key("attention.head_count_kv"), config.kv_heads);
    writer.integer(key("attention.key_length"), config.head_dim);
    writer.integer(key("attention.value_length"), config.head_dim);
    writer.integer(key("rope.dimension_count"), config.rotary_dim);
    writer.array(key("rope.dimension_sections"), GgufValueType::i32,
                 std::vector<int32_t>{11, 11, 10, 0});
    writer.number(key("rope.freq_base"), static_cast<float>(config.ropes[0].base));
    writer.integer(key("feed_forward_length"), config.intermediate);
    writer.integer(key("context_length"), config.context);
    writer.number(key("attention.layer_norm_rms_epsilon"), config.norm_eps);
    writer.integer(key("ssm.conv_kernel"), sizes.taps);
    writer.integer(key("ssm.state_size"), sizes.key_dim);
    writer.integer(key("ssm.group_count"), sizes.key_heads);
    writer.integer(key("ssm.time_step_rank"), sizes.value_heads);
    writer.integer(key("ssm.inner_size"), static_cast<uint32_t>(sizes.value_size()));
    if (listed) {
        std::vector<uint8_t> recurrent;
        for (const LayerConfig &layer : config.layer) {
            recurrent.push_back(layer.recurrent ? 1 : 0);
        }
        recurrent.resize(config.layers + (predicting ? 1 : 0));
        writer.array(key("attention.recurrent_layers"), GgufValueType::boolean, recurrent);
    } else {
        writer.integer(key("full_attention_interval"), 4);
    }
    if (predicting) {
        writer.integer(key("nextn_predict_layers"), 1);
    }
    writer.integer("tokenizer.ggml.eos_token_id", config.end_tokens[0]);
}

inline void GgufHybrid::store(GgufWriter &writer, const std::string &name,
                              const StoredTensor &tensor, RandomWeights &random) const {
    const auto is = [&](const char *part) { return name.find(part) != std::string::npos; };
    std::vector<uint64_t> shape(tensor.shape.rbegin(), tensor.shape.rend());
    std::string bytes = tensor.bytes;
    GgufType type = GgufType::bf16;
    if (shape.size() != 2) {
        type = GgufType::f32;
        bytes.clear();
        for (const float value : values_of(tensor)) {
            const bool norm = (is("norm.weight") && !is("linear_attn.")) || is("mtp.pre_fc_norm_");
            bytes += gguf_number(norm          ? 1.0F + value
                                 : is("A_log") ? -kernels::exp_f32(value)
                                               : value);
        }
    }
    if (is("conv1d")) {
        shape = {config.recurrent.taps, config.recurrent.channels()};
    }
    if (is("in_proj_qkv") || is("conv1d")) {
        const size_t keys =
            2 * config.recurrent.key_size() * (bytes.size() / config.recurrent.channels());
        bytes = bytes.substr(0, keys) + tiled(bytes.substr(keys));
    } else if (is("in_proj_") || is("A_log") || is("dt_bias")) {
        bytes = tiled(bytes);
    } else if (is("linear_attn.out_proj")) {
        const size_t row = bytes.size() / config.hidden;
        std::string rows;
        for (size_t at = 0; at < bytes.size(); at += row) {
            rows += tiled(bytes.substr(at, row));
        }
        bytes = rows;
    }
    if (type == GgufType::bf16 &&
        (integers_of.empty() ? integers : name.starts_with(integers_of))) {
        type = GgufType::q8_0;
        bytes = random.matrix(type, shape[0] * shape[1]);
    }
    const std::string layered = mtp_as_layer(name, config.layers);
    writer.tensor(layered.starts_with("blk.") ? layered : hybrid_name(layered), type, shape, bytes);
}

inline std::string GgufHybrid::bytes() const {
    GgufWriter writer;
    RandomWeights random;
    describe(writer);
    const std::string prefix = "model.language_model.";
    for (const auto &[name, tensor] : tensors) {
        store(writer, name.starts_with(prefix) ? name.substr(prefix.size()) : name, tensor, random);
    }
    if (predicting && tensors.lower_bound("mtp.") == tensors.lower_bound("mtp/")) {
        const std::string block = "blk." + std::to_string(config.layers) + ".";
        writer.tensor(block + "nextn.enorm.weight", GgufType::f32, {4}, std::string(16, '\0'));
        writer.tensor(block + "attn_q.weight", GgufType::f32, {2, 2}, std::string(16, '\0'));
    }
    return writer.bytes();
}

} // namespace stasis::test
