// Bundled Hugging Face models as GGUF files, as llama.cpp's converter stores them: other names,
// rows of llama's queries and keys in another order, Gemma's norms with their one, vectors as F32.
// For tests; says independently of the product what the same model is in either format.
#pragma once

#include <bit>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/config.h"
#include "tests/runtime/gguf_writer.h"
#include "tests/runtime/model_files.h"

namespace stasis::test {

struct GgufModel {
    explicit GgufModel(const std::string &directory)
        : config(read_config(directory)), tensors(read_tensors_of(directory)) {
        architecture = config.architecture == "mistral"      ? "llama"
                       : config.architecture == "qwen3_moe"  ? "qwen3moe"
                       : config.architecture == "ministral3" ? "mistral3"
                       : config.architecture == "olmo3"      ? "olmo2"
                                                             : config.architecture;
        if (config.experts.count != 0) {
            join_experts();
        }
    }

    Config config;
    StoredTensors tensors;
    std::string architecture;
    bool wide = false;  // matrices too as F32
    bool terse = false; // without keys that published files leave to their readers

    // The bytes of one file, or of several that it is split into.
    std::vector<std::string> files(size_t count = 1) const;
    void describe(GgufWriter &writer) const;
    void describe_yarn(GgufWriter &writer, const Rope &rope) const;
    void describe_long_rope(GgufWriter &writer, const Rope &rope) const; // tensors as well
    // Rows of queries and keys are stored with RoPE pairs side by side.
    bool paired() const {
        return architecture == "llama" || architecture == "smollm3" || architecture == "mistral3";
    }
    void store(GgufWriter &writer, const std::string &name, const StoredTensor &tensor) const;
    // The experts of each layer as one tensor of three dimensions.
    void join_experts();
    // Query, key and value of each layer as one matrix, and gate and up: Phi-3's.
    void fuse();
};

inline std::vector<float> values_of(const StoredTensor &tensor) {
    const size_t bytes = tensor.dtype == "F32" ? 4 : 2;
    std::vector<float> values;
    for (size_t at = 0; at < tensor.bytes.size(); at += bytes) {
        uint32_t bits = 0;
        std::memcpy(&bits, tensor.bytes.data() + at, bytes);
        if (tensor.dtype == "F16") {
            const int exponent = static_cast<int>(bits >> 10 & 0x1F);
            const auto fraction = static_cast<float>(bits & 0x3FF);
            const float magnitude = exponent == 0 ? std::ldexp(fraction, -24)
                                                  : std::ldexp(1024 + fraction, exponent - 25);
            values.push_back((bits & 0x8000) != 0 ? -magnitude : magnitude);
        } else {
            values.push_back(std::bit_cast<float>(bytes == 4 ? bits : bits << 16));
        }
    }
    return values;
}

// "model.layers.3.mlp.up_proj.weight" is "blk.3.ffn_up.weight".
inline std::string gguf_name(std::string name, bool four_norms) {
    const std::pair<std::string, std::string> changes[] = {
        {"language_model.", ""},
        {"model.", ""},
        {"layers.", "blk."},
        {"embed_tokens", "token_embd"},
        {"lm_head", "output"},
        {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"},
        {"self_attn.qkv_proj", "attn_qkv"},
        {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"},
        {"mlp.experts.gate_proj", "ffn_gate_exps"},
        {"mlp.experts.up_proj", "ffn_up_exps"},
        {"mlp.experts.down_proj", "ffn_down_exps"},
        {"mlp.gate.", "ffn_gate_inp."},
        {"mlp.gate_up_proj", "ffn_up"},
        {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},
        {"mlp.down_proj", "ffn_down"},
        {"input_layernorm", "attn_norm"},
        {"post_attention_layernorm", four_norms ? "post_attention_norm" : "ffn_norm"},
        {"pre_feedforward_layernorm", "ffn_norm"},
        {"post_feedforward_layernorm", "post_ffw_norm"}};
    if (name == "model.norm.weight" || name == "language_model.model.norm.weight") {
        return "output_norm.weight";
    }
    for (const auto &[from, to] : changes) {
        const size_t at = name.find(from);
        if (at != std::string::npos) {
            name.replace(at, from.size(), to);
        }
    }
    return name;
}

// Moves the pair (i, i + n/2) of each head's rows to (2i, 2i + 1).
inline std::string pair_rows(const std::string &bytes, size_t heads, size_t head_dim) {
    const size_t row = bytes.size() / (heads * head_dim), half = head_dim / 2;
    std::string out;
    for (size_t head = 0; head < heads; ++head) {
        for (size_t i = 0; i < head_dim; ++i) {
            out.append(bytes, (head * head_dim + i / 2 + i % 2 * half) * row, row);
        }
    }
    return out;
}

inline void GgufModel::describe_yarn(GgufWriter &writer, const Rope &rope) const {
    const auto key = [&](const char *name) { return architecture + "." + name; };
    writer.text(key("rope.scaling.type"), "yarn");
    writer.number(key("rope.scaling.factor"), static_cast<float>(rope.factor));
    writer.integer(key("rope.scaling.original_context_length"), rope.original_context);
    if (config.query_growth != 0) { // Ministral 3
        writer.number(key("rope.scaling.yarn_log_multiplier"), 1.0F);
        writer.number(key("attention.temperature_scale"), config.query_growth);
    }
}

inline void GgufModel::describe_long_rope(GgufWriter &writer, const Rope &rope) const {
    writer.text(architecture + ".rope.scaling.type", "longrope");
    writer.integer(architecture + ".rope.scaling.original_context_length", rope.original_context);
    writer.number(architecture + ".rope.scaling.attn_factor", static_cast<float>(rope.amplitude));
    for (const bool is_long : {false, true}) {
        std::string bytes;
        for (const float factor : is_long ? rope.long_factors : rope.factors) {
            bytes += gguf_number(factor);
        }
        writer.tensor(is_long ? "rope_factors_long.weight" : "rope_factors_short.weight",
                      GgufType::f32, {config.rotary() / 2}, bytes);
    }
}

inline void GgufModel::describe(GgufWriter &writer) const {
    const auto key = [&](const char *name) { return architecture + "." + name; };
    writer.text("general.architecture", architecture);
    writer.integer(key("block_count"), config.layers);
    writer.integer(key("embedding_length"), config.hidden);
    writer.integer(key("attention.head_count"), config.heads);
    writer.integer(key("attention.head_count_kv"), config.kv_heads);
    writer.integer(key("attention.key_length"), config.head_dim);
    writer.integer(key("attention.value_length"), config.head_dim);
    writer.integer(key("rope.dimension_count"), config.rotary());
    writer.integer(key("feed_forward_length"), config.intermediate);
    writer.integer(key("context_length"), config.context);
    if (config.experts.count != 0) {
        writer.integer(key("expert_count"), config.experts.count);
        writer.integer(key("expert_used_count"), config.experts.chosen);
        writer.integer(key("expert_feed_forward_length"), config.experts.intermediate);
    }
    if (!terse) {
        writer.integer(key("vocab_size"), config.vocabulary);
    }
    writer.number(key("attention.layer_norm_rms_epsilon"), config.norm_eps);
    const LayerConfig &last = config.layer.back(), &first = config.layer.front();
    const bool gemma = architecture == "gemma3";
    const Rope *global = &config.ropes[last.rope]; // but where the last layer is a local one
    std::vector<uint8_t> local;
    for (const LayerConfig &layer : config.layer) {
        local.push_back(layer.window != 0 ? 1 : 0);
        const Rope &rope = config.ropes[layer.rope];
        global = layer.window == 0 && rope.scaling != RopeScaling::still ? &rope : global;
    }
    if (first.window != 0) {
        writer.integer(key("attention.sliding_window"), first.window);
        if (architecture == "olmo2") {
            writer.array(key("attention.sliding_window_pattern"), GgufValueType::boolean, local);
        }
        if (gemma && !terse) {
            writer.array(key("attention.sliding_window_pattern"), GgufValueType::boolean, local);
            writer.number(key("rope.freq_base_swa"),
                          static_cast<float>(config.ropes[first.rope].base));
        }
    }
    writer.number(key("rope.freq_base"), static_cast<float>(global->base));
    if (global->scaling == RopeScaling::linear) {
        writer.text(key("rope.scaling.type"), "linear");
        writer.number(key("rope.scaling.factor"), static_cast<float>(global->factor));
    }
    if (global->scaling == RopeScaling::yarn) {
        describe_yarn(writer, *global);
    }
    if (config.ropes[0].scaling == RopeScaling::longrope) {
        describe_long_rope(writer, config.ropes[0]);
    }
    if (!terse) {
        writer.number(key("attention.scale"), config.attention_scale);
    }
    if (config.attention_softcap != 0) {
        writer.number(key("attn_logit_softcapping"), config.attention_softcap);
    }
    if (config.final_softcap != 0) {
        writer.number(key("final_logit_softcapping"), config.final_softcap);
    }
    if (!config.bos.empty()) {
        writer.integer("tokenizer.ggml.bos_token_id", config.bos[0]);
    }
    writer.integer("tokenizer.ggml.eos_token_id", config.end_tokens[0]);
    writer.integer("tokenizer.ggml.eot_token_id", config.end_tokens.back());
}

inline void GgufModel::store(GgufWriter &writer, const std::string &name,
                             const StoredTensor &tensor) const {
    const std::vector<uint64_t> shape(tensor.shape.rbegin(), tensor.shape.rend());
    const bool norm = name.find("norm") != std::string::npos;
    GgufType type = tensor.dtype == "BF16"  ? GgufType::bf16
                    : tensor.dtype == "F16" ? GgufType::f16
                                            : GgufType::f32;
    std::string bytes = tensor.bytes;
    if (wide || shape.size() == 1) {
        type = GgufType::f32;
        bytes.clear();
        for (const float value : values_of(tensor)) {
            bytes += gguf_number(norm && config.norm_plus_one ? 1.0F + value : value);
        }
    }
    if (paired() && name.find("q_proj") != std::string::npos) {
        bytes = pair_rows(bytes, config.heads, config.head_dim);
    }
    if (paired() && name.find("k_proj") != std::string::npos) {
        bytes = pair_rows(bytes, config.kv_heads, config.head_dim);
    }
    writer.tensor(gguf_name(name, config.post_norms), type, shape, bytes);
}

inline std::vector<std::string> GgufModel::files(size_t count) const {
    std::vector<GgufWriter> writers(count);
    describe(writers[0]);
    for (size_t i = 0; count > 1 && i < count; ++i) {
        writers[i].integer("split.no", static_cast<uint32_t>(i));
        writers[i].integer("split.count", static_cast<uint32_t>(count));
        writers[i].integer("split.tensors.count", static_cast<uint32_t>(tensors.size()));
    }
    size_t written = 0;
    for (const auto &[name, tensor] : tensors) {
        store(writers[written++ * count / tensors.size()], name, tensor);
    }
    std::vector<std::string> out;
    for (const GgufWriter &writer : writers) {
        out.push_back(writer.bytes());
    }
    return out;
}

inline void GgufModel::join_experts() {
    for (uint32_t i = 0; i < config.layers; ++i) {
        const std::string experts = "model.layers." + std::to_string(i) + ".mlp.experts.";
        for (const std::string part : {"gate_proj", "up_proj", "down_proj"}) {
            StoredTensor joined;
            for (uint32_t expert = 0; expert < config.experts.count; ++expert) {
                const std::string name = experts + std::to_string(expert) + "." + part + ".weight";
                const StoredTensor &tensor = tensors.at(name);
                joined.dtype = tensor.dtype;
                joined.shape = {config.experts.count, tensor.shape[0], tensor.shape[1]};
                joined.bytes += tensor.bytes;
                tensors.erase(name);
            }
            tensors[experts + part + ".weight"] = joined;
        }
    }
}

inline void GgufModel::fuse() {
    architecture = "phi3";
    const auto join = [&](const std::string &layer, const char *to,
                          const std::vector<const char *> &parts) {
        StoredTensor fused;
        for (const char *part : parts) {
            const StoredTensor &tensor = tensors.at(layer + part + ".weight");
            fused.dtype = tensor.dtype;
            fused.shape = {(fused.shape.empty() ? 0 : fused.shape[0]) + tensor.shape[0],
                           tensor.shape[1]};
            fused.bytes += tensor.bytes;
            tensors.erase(layer + part + ".weight");
        }
        tensors[layer + to + ".weight"] = fused;
    };
    for (uint32_t i = 0; i < config.layers; ++i) {
        const std::string layer = "model.layers." + std::to_string(i) + ".";
        join(layer, "self_attn.qkv_proj",
             {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"});
        join(layer, "mlp.gate_up_proj", {"mlp.gate_proj", "mlp.up_proj"});
    }
}

} // namespace stasis::test
