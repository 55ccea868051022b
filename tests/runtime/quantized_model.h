// Small GGUF models of random integer weights, the same bytes on every machine, as files that are
// there until the process ends. Knows the format's layouts (ggml's docs/gguf.md, ggml-common.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/runtime/gguf_writer.h"

namespace stasis::test {

// A number that f16 can represent, normal and not zero.
inline uint16_t f16_of(float value) {
    int exponent = 0;
    const float fraction = std::frexp(std::fabs(value), &exponent); // 0.5 .. 1
    return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) + (exponent + 14) * 1024 +
                                 static_cast<int>(fraction * 2048) - 1024);
}

class RandomWeights {
  public:
    uint32_t next() { // Lehmer generator, Park and Miller 1988
        x_ = x_ * 48271 % 2147483647;
        return static_cast<uint32_t>(x_);
    }

    // Weights of about 0.05 either side of 0.
    std::string matrix(GgufType type, uint64_t count) {
        std::string bytes;
        if (type == GgufType::bf16) {
            for (uint64_t i = 0; i < count; ++i) { // +-(1 .. 2) * 2^-4 or 2^-5
                const uint32_t bits = next() >> 4;
                bytes += gguf_number(static_cast<uint16_t>((bits & 0x80FF) + 0x3D00));
            }
            return bytes;
        }
        const Block block = block_of(type);
        for (uint64_t i = 0; i < count / block.elements; ++i) {
            std::string part;
            while (part.size() < block.size_bytes) {
                part += static_cast<char>(next() >> 8);
            }
            if (type == GgufType::mxfp4) { // an exponent
                part[0] = static_cast<char>(121 + (next() >> 8 & 1));
                bytes += part;
                continue;
            }
            const float vary = 1.0F + static_cast<float>(next() >> 8 & 15) / 16.0F;
            put(part, block.d_at, block.d * vary);
            if (block.m_at != block.d_at) {
                put(part, block.m_at, block.m * vary);
            }
            bytes += part;
        }
        return bytes;
    }

    // f32 of 0.75 .. 1.25.
    std::string norm(uint64_t count) {
        std::string bytes;
        for (uint64_t i = 0; i < count; ++i) {
            bytes += gguf_number(0.75F + static_cast<float>(next() >> 8 & 255) / 512.0F);
        }
        return bytes;
    }

  private:
    struct Block {
        uint64_t elements, size_bytes, d_at, m_at; // where the scales are, f16
        float d, m;
    };
    static Block block_of(GgufType type) {
        switch (type) {
        case GgufType::q8_0:
            return {32, 34, 0, 0, 0x1p-11F, 0};
        case GgufType::q4_0:
            return {32, 18, 0, 0, 0x1p-7F, 0};
        case GgufType::q4_1: // 0 .. 15 become -7.5 .. 7.5
            return {32, 20, 0, 2, 0x1p-7F, -7.5F * 0x1p-7F};
        case GgufType::q5_0:
            return {32, 22, 0, 0, 0x1p-8F, 0};
        case GgufType::q5_1:
            return {32, 24, 0, 2, 0x1p-8F, -15.5F * 0x1p-8F};
        case GgufType::q4_k:
            return {256, 144, 0, 2, 0x1p-12F, 7.5F * 0x1p-12F};
        case GgufType::q5_k:
            return {256, 176, 0, 2, 0x1p-13F, 15.5F * 0x1p-13F};
        case GgufType::q6_k:
            return {256, 210, 208, 208, 0x1p-14F, 0};
        case GgufType::q2_k: // 0 .. 45 times d, less 0 .. 15 times m
            return {256, 84, 80, 82, 0x1p-8F, 1.5F * 0x1p-8F};
        case GgufType::q3_k:
            return {256, 110, 108, 108, 0x1p-10F, 0};
        case GgufType::iq4_nl: // -127 .. 113
            return {32, 18, 0, 0, 0x1p-11F, 0};
        case GgufType::iq4_xs:
            return {256, 136, 0, 0, 0x1p-14F, 0};
        case GgufType::mxfp4:
            return {32, 17, 0, 0, 0, 0};
        default:
            throw std::logic_error("no blocks");
        }
    }
    static void put(std::string &part, uint64_t at, float value) {
        part.replace(at, 2, gguf_number(f16_of(value)));
    }

    uint64_t x_ = 1;
};

// A model of two layers, 192 tokens; of the matrices of a layer in the order of the names below.
struct QuantizedModel {
    const char *architecture;
    GgufType embeddings;
    std::vector<GgufType> layers[2]; // q, k, v, output, gate, up, down
    std::vector<GgufType> head;      // none: tied
    uint64_t inner = 256;            // outputs of gate and up

    std::string bytes() const;
};

inline std::string QuantizedModel::bytes() const {
    constexpr uint64_t kHidden = 256, kQuery = 128, kKey = 64, kTokens = 192;
    const std::string prefix = std::string(architecture) + ".";
    const bool gemma = prefix == "gemma3.";
    GgufWriter writer;
    writer.text("general.architecture", architecture);
    writer.integer(prefix + "block_count", 2).integer(prefix + "embedding_length", kHidden);
    writer.integer(prefix + "attention.head_count", 4);
    writer.integer(prefix + "attention.head_count_kv", 2);
    writer.integer(prefix + "attention.key_length", 32);
    writer.integer(prefix + "feed_forward_length", inner);
    writer.integer(prefix + "context_length", 2048);
    writer.number(prefix + "attention.layer_norm_rms_epsilon", 1e-5F);
    writer.integer(prefix + "attention.sliding_window", gemma ? 16 : 20);
    writer.integer(prefix + "attention.sliding_window_pattern", gemma ? 2 : 0);
    writer.integer("tokenizer.ggml.bos_token_id", 1).integer("tokenizer.ggml.eos_token_id", 2);

    RandomWeights random;
    const auto matrix = [&](const std::string &name, GgufType type, uint64_t columns,
                            uint64_t rows) {
        writer.tensor(name + ".weight", type, {columns, rows}, random.matrix(type, columns * rows));
    };
    const auto norm = [&](const std::string &name, uint64_t size) {
        writer.tensor(name + ".weight", GgufType::f32, {size}, random.norm(size));
    };
    matrix("token_embd", embeddings, kHidden, kTokens);
    for (size_t i = 0; i < 2; ++i) {
        const std::string layer = "blk." + std::to_string(i) + ".";
        matrix(layer + "attn_q", layers[i][0], kHidden, kQuery);
        matrix(layer + "attn_k", layers[i][1], kHidden, kKey);
        matrix(layer + "attn_v", layers[i][2], kHidden, kKey);
        matrix(layer + "attn_output", layers[i][3], kQuery, kHidden);
        matrix(layer + "ffn_gate", layers[i][4], kHidden, inner);
        matrix(layer + "ffn_up", layers[i][5], kHidden, inner);
        matrix(layer + "ffn_down", layers[i][6], inner, kHidden);
        norm(layer + "attn_norm", kHidden);
        norm(layer + "ffn_norm", kHidden);
        if (gemma) {
            norm(layer + "attn_q_norm", 32);
            norm(layer + "attn_k_norm", 32);
            norm(layer + "post_attention_norm", kHidden);
            norm(layer + "post_ffw_norm", kHidden);
        }
    }
    norm("output_norm", kHidden);
    if (!head.empty()) {
        matrix("output", head[0], kHidden, kTokens);
    }
    return writer.bytes();
}

// The types that devices have too; a window in every layer; a head of its own. And: integers beside
// bf16 in one layer, a window in one layer of two, the head tied to integer embeddings. And the
// types that only the CPU has.
inline const std::map<std::string, QuantizedModel> &quantized_models() {
    using enum GgufType;
    static const std::map<std::string, QuantizedModel> models = {
        {"quantized/llama",
         {"llama",
          q5_k,
          {{q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k}, {q6_k, q5_k, q4_k, q4_1, q4_0, q8_0, q6_k}},
          {q6_k},
          256}},
        {"quantized/gemma3-tied",
         {"gemma3",
          q8_0,
          {{bf16, q8_0, q4_k, bf16, q4_0, bf16, q4_0}, {q6_k, bf16, q5_1, q8_0, q5_0, q5_1, q4_k}},
          {},
          256}},
        {"quantized/cpu-only",
         {"llama",
          iq4_xs,
          {{iq4_nl, q2_k, mxfp4, mxfp4, q3_k, iq4_xs, q2_k},
           {q3_k, mxfp4, iq4_xs, iq4_nl, mxfp4, q6_k, q3_k}},
          {q2_k},
          256}}};
    return models;
}

// Path of one of them; the file is written when it is first asked for.
inline std::string quantized_model(const std::string &name) {
    struct Folder {
        std::string path = (std::filesystem::temp_directory_path() / "stasis-test-XXXXXX").string();
        Folder() {
            if (mkdtemp(path.data()) == nullptr) {
                throw std::runtime_error("no temporary directory");
            }
        }
        ~Folder() { std::filesystem::remove_all(path); }
    };
    static const Folder folder;
    const std::string path = folder.path + "/" + name.substr(name.find('/') + 1) + ".gguf";
    if (!std::filesystem::exists(path)) {
        const std::string bytes = quantized_models().at(name).bytes();
        std::ofstream(path, std::ios::binary)
            .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    return path;
}

} // namespace stasis::test
