// A bundled gpt-oss as a GGUF file, as llama.cpp's converter stores it (conversion/gpt_oss.py):
// experts by row, gate and up apart. For tests; says independently of the product what the same
// model is in either format.
#pragma once

#include <string>
#include <vector>

#include "runtime/model/config.h"
#include "tests/runtime/gguf_model.h"

namespace stasis::test {

struct GgufGptOss {
    explicit GgufGptOss(const std::string &directory)
        : config(read_config(directory)), tensors(read_tensors_of(directory)) {}

    Config config;
    StoredTensors tensors;

    std::string bytes() const {
        GgufWriter writer;
        describe(writer);
        for (const auto &[name, tensor] : tensors) {
            store(writer, name, tensor);
        }
        return writer.bytes();
    }

    void describe(GgufWriter &writer) const;
    void store(GgufWriter &writer, const std::string &name, const StoredTensor &tensor) const;
    // Writes the part of a tensor of all experts whose value [row][column] of an expert is at
    // `first` + row * row_step + column * column_step.
    void store_part(GgufWriter &writer, const std::string &name, const StoredTensor &tensor,
                    const std::vector<size_t> &shape, size_t first, size_t row_step,
                    size_t column_step) const;
    void store_mxfp4(GgufWriter &writer, const std::string &name, const std::string &stem,
                     size_t part, size_t parts) const;
};

inline void GgufGptOss::describe(GgufWriter &writer) const {
    const auto key = [](const char *name) { return std::string("gpt-oss.") + name; };
    const Rope &rope = config.ropes[0];
    writer.text("general.architecture", "gpt-oss");
    writer.integer(key("block_count"), config.layers);
    writer.integer(key("context_length"), config.context);
    writer.integer(key("embedding_length"), config.hidden);
    writer.integer(key("feed_forward_length"), config.intermediate);
    writer.integer(key("attention.head_count"), config.heads);
    writer.integer(key("attention.head_count_kv"), config.kv_heads);
    writer.integer(key("attention.key_length"), config.head_dim);
    writer.integer(key("attention.value_length"), config.head_dim);
    writer.integer(key("attention.sliding_window"), config.layer[0].window);
    writer.number(key("attention.layer_norm_rms_epsilon"), config.norm_eps);
    writer.number(key("rope.freq_base"), static_cast<float>(rope.base));
    writer.text(key("rope.scaling.type"), "yarn");
    writer.number(key("rope.scaling.factor"), static_cast<float>(rope.factor));
    writer.integer(key("rope.scaling.original_context_length"), rope.original_context);
    writer.integer(key("expert_count"), config.experts.count);
    writer.integer(key("expert_used_count"), config.experts.chosen);
    writer.integer(key("expert_feed_forward_length"), config.experts.intermediate);
    writer.integer("tokenizer.ggml.eos_token_id", config.end_tokens[0]);
}

inline void GgufGptOss::store_part(GgufWriter &writer, const std::string &name,
                                   const StoredTensor &tensor, const std::vector<size_t> &shape,
                                   size_t first, size_t row_step, size_t column_step) const {
    const size_t columns = shape.size() == 1 ? 1 : shape[1];
    const size_t expert_values = tensor.bytes.size() / 2 / config.experts.count;
    std::string bytes;
    for (size_t expert = 0; expert < config.experts.count; ++expert) {
        for (size_t i = 0; i < shape[0] * columns; ++i) {
            const size_t at =
                expert * expert_values + first + i / columns * row_step + i % columns * column_step;
            // A bf16; a vector's values become f32.
            bytes +=
                (shape.size() == 1 ? std::string(2, '\0') : "") + tensor.bytes.substr(2 * at, 2);
        }
    }
    std::vector<uint64_t> sizes(shape.rbegin(), shape.rend());
    sizes.push_back(config.experts.count);
    writer.tensor(name, shape.size() == 1 ? GgufType::f32 : GgufType::bf16, sizes, bytes);
}

// Of each block the exponent, then elements i and i + 16 in a byte; stored are elements 2 i and
// 2 i + 1. The rows of `parts` matrices are stored in turn.
inline void GgufGptOss::store_mxfp4(GgufWriter &writer, const std::string &name,
                                    const std::string &stem, size_t part, size_t parts) const {
    const StoredTensor &bits = tensors.at(stem + "_blocks"), &scales = tensors.at(stem + "_scales");
    const size_t rows = bits.shape[1], blocks = bits.shape[2];
    std::string bytes;
    for (size_t row = part; row < config.experts.count * rows; row += parts) {
        for (size_t block = row * blocks; block < (row + 1) * blocks; ++block) {
            std::string elements;
            for (size_t i = 0; i < 16; ++i) {
                const auto pair = static_cast<uint8_t>(bits.bytes[block * 16 + i]);
                elements += static_cast<char>(pair & 15);
                elements += static_cast<char>(pair >> 4);
            }
            bytes += scales.bytes[block];
            for (size_t i = 0; i < 16; ++i) {
                bytes += static_cast<char>(elements[i] | elements[i + 16] << 4);
            }
        }
    }
    writer.tensor(name, GgufType::mxfp4, {blocks * 32, rows / parts, config.experts.count}, bytes);
}

inline void GgufGptOss::store(GgufWriter &writer, const std::string &name,
                              const StoredTensor &tensor) const {
    const size_t hidden = config.hidden, inner = config.experts.intermediate;
    const auto ends = [&](const char *ending) { return name.ends_with(ending); };
    const std::string block =
        name.starts_with("model.layers.") ? "blk." + name.substr(13, name.find('.', 13) - 12) : "";
    if (ends(".gate_up_proj_blocks")) {
        const std::string stem = name.substr(0, name.size() - 7);
        store_mxfp4(writer, block + "ffn_gate_exps.weight", stem, 0, 2);
        store_mxfp4(writer, block + "ffn_up_exps.weight", stem, 1, 2);
    } else if (ends(".down_proj_blocks")) {
        store_mxfp4(writer, block + "ffn_down_exps.weight", name.substr(0, name.size() - 7), 0, 1);
    } else if (ends("_scales")) {
        return; // with the blocks
    } else if (ends(".gate_up_proj")) {
        store_part(writer, block + "ffn_gate_exps.weight", tensor, {inner, hidden}, 0, 2,
                   2 * inner);
        store_part(writer, block + "ffn_up_exps.weight", tensor, {inner, hidden}, 1, 2, 2 * inner);
    } else if (ends(".gate_up_proj_bias")) {
        store_part(writer, block + "ffn_gate_exps.bias", tensor, {inner}, 0, 2, 0);
        store_part(writer, block + "ffn_up_exps.bias", tensor, {inner}, 1, 2, 0);
    } else if (ends(".down_proj")) {
        store_part(writer, block + "ffn_down_exps.weight", tensor, {hidden, inner}, 0, 1, hidden);
    } else if (ends(".down_proj_bias")) {
        store_part(writer, block + "ffn_down_exps.bias", tensor, {hidden}, 0, 1, 0);
    } else {
        const std::string gguf = ends(".sinks")           ? block + "attn_sinks.weight"
                                 : ends(".router.weight") ? block + "ffn_gate_inp.weight"
                                 : ends(".router.bias")   ? block + "ffn_gate_inp.bias"
                                 : ends("attention_layernorm.weight")
                                     ? block + "post_attention_norm.weight"
                                     : gguf_name(name, false);
        std::string bytes = tensor.bytes;
        if (tensor.shape.size() == 1) {
            bytes.clear();
            for (const float value : values_of(tensor)) {
                bytes += gguf_number(value);
            }
        }
        writer.tensor(gguf, tensor.shape.size() == 1 ? GgufType::f32 : GgufType::bf16,
                      {tensor.shape.rbegin(), tensor.shape.rend()}, bytes);
    }
}

} // namespace stasis::test
