// GGUF files that describe no model, or one that is not supported, are refused: which key or tensor
// it is, and what is wrong with it.
#include <functional>
#include <limits>

#include "runtime/host/threads.h"
#include "runtime/model/gguf/checkpoint.h"
#include "runtime/model/gguf/config.h"
#include "tests/runtime/model_files.h"
#include "tests/runtime/models.h"

namespace stasis {

namespace {

using Type = GgufValueType;

// A llama of one layer of a few numbers, whose keys and tensors a test changes.
struct Parts {
    struct Value {
        Type type;
        std::string bytes;
    };
    struct Tensor {
        GgufType type;
        std::vector<uint64_t> shape;
        std::string bytes;
    };
    std::string architecture = "llama";
    std::map<std::string, Value> keys; // without "ARCHITECTURE.", but for those with ':' before
    std::map<std::string, Tensor> tensors;

    Parts() {
        set("block_count", 1).set("embedding_length", 32).set("attention.head_count", 4);
        set("attention.head_count_kv", 2).set("feed_forward_length", 64);
        set("context_length", 256).real("attention.layer_norm_rms_epsilon", 1e-5F);
        for (const char *norm : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
            tensors[std::string(norm) + ".weight"] = {
                GgufType::f32, {32}, std::string(32 * 4, '\0')};
        }
        bf16("token_embd", 32, 40).bf16("output", 32, 40);
        bf16("blk.0.attn_q", 32, 32).bf16("blk.0.attn_k", 32, 16).bf16("blk.0.attn_v", 32, 16);
        bf16("blk.0.attn_output", 32, 32).bf16("blk.0.ffn_gate", 32, 64);
        bf16("blk.0.ffn_up", 32, 64).bf16("blk.0.ffn_down", 64, 32);
    }
    Parts &set(const std::string &key, uint64_t value) {
        keys[key] = {Type::u64, gguf_number(value)};
        return *this;
    }
    Parts &real(const std::string &key, float value) {
        keys[key] = {Type::f32, gguf_number(value)};
        return *this;
    }
    Parts &text(const std::string &key, const std::string &value) {
        keys[key] = {Type::string, gguf_text(value)};
        return *this;
    }
    Parts &bf16(const std::string &name, uint64_t columns, uint64_t rows) {
        tensors[name + ".weight"] = {
            GgufType::bf16, {columns, rows}, std::string(columns * rows * 2, '\0')};
        return *this;
    }
    std::string bytes() const {
        GgufWriter writer;
        writer.text("general.architecture", architecture);
        for (const auto &[key, value] : keys) {
            writer.pair(key[0] == ':' ? key.substr(1) : architecture + "." + key, value.type,
                        value.bytes);
        }
        for (const auto &[name, tensor] : tensors) {
            writer.tensor(name, tensor.type, tensor.shape, tensor.bytes);
        }
        return writer.bytes();
    }
    // As opening a model does; the config alone where that says nothing.
    Config load() const {
        const TemporaryDirectory directory;
        write_bytes(directory.file("m.gguf"), bytes());
        const GgufFile gguf = open_gguf(directory.file("m.gguf"));
        const Config config = read_config(gguf);
        Threads threads(1);
        const Memory heap;
        ModelIdentity identity;
        load_weights(checkpoint_of(gguf, config), config, {heap}, threads, {}, identity);
        return config;
    }
};

void refused(Status status, const std::vector<std::string> &parts,
             const std::function<void(Parts &)> &change) {
    Parts model;
    change(model);
    std::vector<std::string> all = parts;
    all.emplace_back("m.gguf");
    expect_error(status, all, [&] { model.load(); });
}

std::string array_of(const std::vector<uint32_t> &values) {
    std::string bytes;
    for (const uint32_t value : values) {
        bytes += gguf_number(value);
    }
    return gguf_array(Type::u32, values.size(), bytes);
}

} // namespace

TEST_CASE("GgufFile: GGUF description: what the keys say, and what holds where they say nothing") {
    Config config = Parts().load();
    CHECK(config.head_dim == 8);
    CHECK(config.vocabulary == 40);
    CHECK(config.interleaved_rope);
    CHECK(!config.tied_head);
    CHECK(!config.attention_bias);
    CHECK(config.ropes == std::vector<Rope>{Rope{}});
    CHECK(config.layer[0].window == 0);
    CHECK(config.bos.empty());

    Parts one_for_each; // as some files have it
    one_for_each.keys["attention.head_count"] = {Type::array, array_of({4})};
    CHECK(one_for_each.load().heads == 4);
    Parts grouped;
    grouped.keys.erase("attention.head_count_kv"); // as many as there are heads
    grouped.bf16("blk.0.attn_k", 32, 32).bf16("blk.0.attn_v", 32, 32);
    CHECK(grouped.load().kv_heads == 4);
    Parts tied;
    tied.tensors.erase("output.weight");
    CHECK(tied.load().tied_head);
    // A factor without a kind is of linear scaling, under either name.
    for (const char *key : {"rope.scaling.factor", "rope.scale_linear"}) {
        Parts scaled;
        scaled.real(key, 4);
        CHECK(scaled.load().ropes[0].factor == 4);
        CHECK(scaled.load().ropes[0].scaling == RopeScaling::linear);
    }
    // YaRN's amplitude follows from the factor, or is 1, or is given.
    Parts yarn;
    yarn.text("rope.scaling.type", "yarn").real("rope.scaling.factor", 8);
    CHECK(yarn.load().ropes[0].scaling == RopeScaling::yarn);
    CHECK(yarn.load().ropes[0].original_context == 256);
    CHECK(yarn.load().ropes[0].amplitude == doctest::Approx(1.2079441541679836));
    CHECK(yarn.real("rope.scaling.yarn_log_multiplier", 1).load().ropes[0].amplitude == 1);
    CHECK(yarn.real("rope.scaling.yarn_attn_factor", 3).load().ropes[0].amplitude == 3);
    CHECK(yarn.real("rope.scaling.attn_factor", 2).load().ropes[0].amplitude == 6);
    refused(Status::unsupported, {"yarn_ext_factor"},
            [&](Parts &m) { m = Parts(yarn).real("rope.scaling.yarn_ext_factor", 0.5F); });
    refused(Status::corrupt, {"yarn_beta_fast", "yarn_beta_slow"},
            [&](Parts &m) { m = Parts(yarn).real("rope.scaling.yarn_beta_fast", 0.5F); });
    refused(Status::corrupt, {"rope.freq_base", "logarithm"},
            [&](Parts &m) { m = Parts(yarn).real("rope.freq_base", 1); });
    Parts none;
    none.text("rope.scaling.type", "none").set("expert_count", 0).real("logit_scale", 1);
    none.set("attention.sliding_window", 0);
    CHECK(none.load().ropes[0].scaling == RopeScaling::none);
    Parts ends;
    ends.set(":tokenizer.ggml.eos_token_id", 7).set(":tokenizer.ggml.eot_token_id", 9);
    CHECK(ends.load().end_tokens == std::vector<uint32_t>{7, 9});
    // Without a key for the end of a turn, the token with the spelling of one ends it, if it is
    // special.
    Parts spelled;
    spelled.set(":tokenizer.ggml.eos_token_id", 0);
    std::string texts, types;
    for (const char *text : {"</s>", "<|im_end|>", "a", "<|im_end|>"}) {
        texts += gguf_text(text);
    }
    for (const int32_t type : {3, 1, 1, 3}) {
        types += gguf_number(type);
    }
    spelled.keys[":tokenizer.ggml.tokens"] = {Type::array, gguf_array(Type::string, 4, texts)};
    spelled.keys[":tokenizer.ggml.token_type"] = {Type::array, gguf_array(Type::i32, 4, types)};
    CHECK(spelled.load().end_tokens == std::vector<uint32_t>{0, 3});
    spelled.set(":tokenizer.ggml.eot_token_id", 2);
    CHECK(spelled.load().end_tokens == std::vector<uint32_t>{0, 2});
}

TEST_CASE("GgufFile: GGUF description: architectures and conventions that are not supported") {
    refused(Status::unsupported, {"general.architecture", "\"mamba\"", "llama", "gemma3", "phi3"},
            [](Parts &m) { m.architecture = "mamba"; });
    refused(Status::unsupported, {"\"\""}, [](Parts &m) { m.architecture = ""; });
    refused(Status::unsupported, {"general.type", "\"adapter\""},
            [](Parts &m) { m.text(":general.type", "adapter"); });
    refused(Status::unsupported, {"experts"}, [](Parts &m) { m.set("expert_count", 8); });
    refused(Status::unsupported, {"rope.scaling.type", "\"dynamic\""},
            [](Parts &m) { m.text("rope.scaling.type", "dynamic"); });
    refused(Status::unsupported, {"rope.scaling.type", "\"longrope\""},
            [](Parts &m) { m.text("rope.scaling.type", "longrope"); });
    refused(Status::unsupported, {"rope.dimension_count"},
            [](Parts &m) { m.set("rope.dimension_count", 4); });
    refused(Status::unsupported, {"attention.value_length"},
            [](Parts &m) { m.set("attention.value_length", 16); });
    refused(Status::unsupported, {"attention.head_count", "different"}, [](Parts &m) {
        m.set("block_count", 2);
        m.keys["attention.head_count"] = {Type::array, array_of({4, 2})};
    });
    for (const char *key :
         {"logit_scale", "embedding_scale", "residual_scale", "attention.clamp_kqv",
          "attention.max_alibi_bias", "attention.temperature_scale", "rope.scaling.attn_factor"}) {
        refused(Status::unsupported, {key}, [&](Parts &m) { m.real(key, 8); });
    }
    refused(Status::unsupported, {"causal"}, [](Parts &m) {
        m.keys["attention.causal"] = {Type::boolean, std::string(1, '\0')};
    });
    refused(Status::unsupported, {"parallel"}, [](Parts &m) {
        m.keys["use_parallel_residual"] = {Type::boolean, "\1"};
    });
}

TEST_CASE("GgufFile: GGUF description: windows of Qwen's, pooling, and blocks laid out as they "
          "once were") {
    for (const char *qwen : {"qwen2", "qwen3"}) {
        CAPTURE(qwen);
        const auto with = [&](uint64_t window) {
            return [qwen, window](Parts &m) {
                m.architecture = qwen;
                m.tensors["blk.0.attn_q_norm.weight"] = m.tensors["blk.0.attn_k_norm.weight"] = {
                    GgufType::f32, {8}, std::string(8 * 4, '\0')};
                m.set("attention.sliding_window", window);
            };
        };
        refused(Status::unsupported, {qwen, "attention.sliding_window", "4"}, with(4));
        refused(Status::unsupported, {qwen, "attention.sliding_window", "255"}, with(255));
        for (const uint64_t neutral : {0, 256, 32768}) { // none, or all of the context
            Parts model;
            with(neutral)(model);
            if (model.architecture == "qwen2") {
                model.tensors.erase("blk.0.attn_q_norm.weight");
                model.tensors.erase("blk.0.attn_k_norm.weight");
            }
            CHECK(model.load().layer[0].window == 0);
        }
    }
    CHECK(Parts().set("pooling_type", 2).load().layers == 1); // embeddings refuse it

    Parts blocks;
    blocks.tensors["output.weight"] = {GgufType::q8_0, {32, 40}, std::string(40 * 34, '\0')};
    CHECK(blocks.load().layers == 1); // no version
    CHECK(blocks.set(":general.quantization_version", 2).load().layers == 1);
    refused(Status::unsupported, {"general.quantization_version is 1", "output.weight"},
            [&](Parts &m) { m = blocks.set(":general.quantization_version", 1); });
    CHECK(Parts().set(":general.quantization_version", 1).load().layers == 1); // of no blocks
}

TEST_CASE(
    "GgufFile: GGUF description: every size that is absent, zero, too large or of another type") {
    for (const char *key : {"block_count", "embedding_length", "attention.head_count",
                            "feed_forward_length", "context_length"}) {
        CAPTURE(key);
        refused(Status::corrupt, {key, "found nothing"}, [&](Parts &m) { m.keys.erase(key); });
    }
    for (const char *key :
         {"block_count", "embedding_length", "attention.head_count", "attention.head_count_kv",
          "feed_forward_length", "context_length", "attention.key_length", "attention.value_length",
          "vocab_size", "rope.dimension_count"}) {
        CAPTURE(key);
        for (const uint64_t value :
             {uint64_t{0}, (uint64_t{1} << 32) + 1, uint64_t{1} << 62, ~uint64_t{0}}) {
            refused(Status::corrupt, {key}, [&](Parts &m) { m.set(key, value); });
        }
        refused(Status::corrupt, {key}, [&](Parts &m) { m.real(key, 4); });
        refused(Status::corrupt, {key}, [&](Parts &m) { m.text(key, "4"); });
        refused(Status::corrupt, {key}, [&](Parts &m) {
            m.keys[key] = {Type::i32, gguf_number(int32_t{-4})};
        });
    }
    for (const char *key : {"attention.sliding_window", "expert_count"}) {
        refused(Status::corrupt, {key}, [&](Parts &m) { m.set(key, uint64_t{1} << 40); });
    }
    for (const char *key :
         {"attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.scaling.factor",
          "attention.scale", "attn_logit_softcapping", "final_logit_softcapping"}) {
        CAPTURE(key);
        for (const float value : {0.0F, -1.0F, 1e-40F, std::numeric_limits<float>::infinity(),
                                  std::numeric_limits<float>::quiet_NaN()}) {
            refused(Status::corrupt, {key}, [&](Parts &m) { m.real(key, value); });
        }
        refused(Status::corrupt, {key}, [&](Parts &m) { m.set(key, 1); });
        refused(Status::corrupt, {key}, [&](Parts &m) {
            m.keys[key] = {Type::f64, gguf_number(1e300)};
        });
    }
}

TEST_CASE("GgufFile: GGUF description: sizes that do not fit each other") {
    refused(Status::corrupt, {"attention.head_count", "(4)", "attention.head_count_kv", "(3)"},
            [](Parts &m) { m.set("attention.head_count_kv", 3); });
    refused(Status::corrupt, {"attention.head_count", "divisor"},
            [](Parts &m) { m.set("attention.head_count", 5); });
    refused(Status::corrupt, {"attention.key_length", "(7)", "odd"},
            [](Parts &m) { m.set("attention.key_length", 7); });
    refused(Status::unsupported, {"attention.key_length", "(2048)"},
            [](Parts &m) { m.set("attention.key_length", 2048); });
    refused(Status::corrupt, {"attention.head_count", "attention.key_length", "exceeds"},
            [](Parts &m) {
                m.set("attention.head_count", 1 << 20).set("attention.key_length", 1 << 20);
            });
    refused(Status::corrupt, {"vocab_size", "41 and 40"},
            [](Parts &m) { m.set("vocab_size", 41); });
    refused(Status::corrupt, {"attention.head_count", "2 layers"}, [](Parts &m) {
        m.set("block_count", 2);
        m.keys["attention.head_count"] = {Type::array, array_of({4})};
    });
    refused(Status::corrupt, {"attention.head_count"}, [](Parts &m) {
        m.keys["attention.head_count"] = {Type::array, array_of({0})};
    });
    refused(Status::corrupt, {"sliding_window_pattern", "1 layers"}, [](Parts &m) {
        m.keys["attention.sliding_window_pattern"] = {Type::array,
                                                      gguf_array(Type::boolean, 0, "")};
    });
    for (const char *key : {"bos", "eos", "eot"}) {
        refused(Status::corrupt, {key, "40"},
                [&](Parts &m) { m.set(std::string(":tokenizer.ggml.") + key + "_token_id", 40); });
    }
    refused(Status::corrupt, {"gemma3.attention.sliding_window", "found 0"}, [](Parts &m) {
        m.architecture = "gemma3";
        m.set("attention.sliding_window", 0);
    });
}

TEST_CASE("GgufFile: GGUF tensors: missing ones, of other shapes and types, and unknown ones") {
    const Parts good;
    for (const auto &entry : good.tensors) {
        const std::string &name = entry.first;
        CAPTURE(name);
        if (name == "output.weight") {
            continue; // would be tied
        }
        Parts missing;
        missing.tensors.erase(name);
        expect_error(Status::corrupt, {name, "missing"}, [&] { missing.load(); });
        Parts narrow;
        Parts::Tensor &tensor = narrow.tensors.at(name);
        tensor.shape.back() -= 1;
        if (name == "token_embd.weight") {
            continue; // which says how many tokens there are
        }
        refused(Status::corrupt, {name, "shape"}, [&](Parts &m) { m.tensors.at(name) = tensor; });
    }
    refused(Status::corrupt, {"output.weight", "[40, 32]", "[32, 40]"}, [](Parts &m) {
        m.tensors.at("output.weight").shape = {40, 32};
    });
    refused(Status::corrupt, {"token_embd.weight", "matrix"}, [](Parts &m) {
        m.tensors.at("token_embd.weight").shape = {32, 20, 2};
    });
    // I8, IQ2_XXS, Q8_K, IQ3_S, F64, NVFP4, a number without a name.
    for (const uint32_t type : {24U, 16U, 15U, 21U, 28U, 40U, 77U}) {
        const auto number = static_cast<GgufType>(type);
        refused(Status::unsupported, {"blk.0.ffn_up.weight", gguf_type_name(number), "Q6_K"},
                [&](Parts &m) { m.tensors.at("blk.0.ffn_up.weight").type = number; });
    }
    // Integers are for matrices.
    refused(Status::unsupported, {"blk.0.attn_norm.weight", "Q8_0"}, [](Parts &m) {
        m.tensors.at("blk.0.attn_norm.weight") = {GgufType::q8_0, {32}, std::string(34, '\0')};
    });
    refused(Status::unsupported, {"blk.0.attn_q.bias", "Q8_0"}, [](Parts &m) {
        for (const char *name : {"q", "k", "v"}) {
            const uint64_t size = name[0] == 'q' ? 32 : 16;
            m.tensors[std::string("blk.0.attn_") + name + ".bias"] = {
                GgufType::f32, {size}, std::string(size * 4, '\0')};
        }
        m.tensors["blk.0.attn_q.bias"] = {GgufType::q8_0, {32}, std::string(34, '\0')};
    });
    for (const char *name :
         {"blk.0.ffn_gate_inp.weight", "blk.1.attn_q.weight", "blk.0.attn_q.bias2",
          "blk.0.attn_k.bias", "blk.00.attn_q.weight", "blk..attn_q.weight",
          "rope_factors_long.weight", "model.layers.0.self_attn.q_proj.weight", "lm_head.weight",
          "blk.0.attn_q_norm.weight", "v.blk.0.attn_q.weight", "blk.0.attn_qkv.weight",
          "model.norm.weight"}) {
        CAPTURE(name);
        refused(Status::unsupported, {name, "architecture"}, [&](Parts &m) {
            m.tensors[name] = {GgufType::f32, {32}, std::string(32 * 4, '\0')};
        });
    }
}

TEST_CASE("GgufFile: GGUF tensors: values that are not finite, scales of integers among them") {
    struct Case {
        GgufType type;
        size_t bytes, at;
        std::string scale = gguf_number(uint16_t{0x7C00});
    };
    for (const Case &c :
         {Case{GgufType::q8_0, 34, 0}, Case{GgufType::q4_0, 18, 0}, Case{GgufType::q4_1, 20, 2},
          Case{GgufType::q5_0, 22, 0}, Case{GgufType::q5_1, 24, 2}, Case{GgufType::iq4_nl, 18, 0},
          Case{GgufType::mxfp4, 17, 0, "\xFF"}}) {
        refused(Status::nonfinite, {"blk.0.ffn_down.weight", "index 32 "}, [&](Parts &m) {
            Parts::Tensor &tensor = m.tensors.at("blk.0.ffn_down.weight");
            tensor.type = c.type;
            tensor.bytes.assign(64 * 32 / 32 * c.bytes, '\0');
            tensor.bytes.replace(c.bytes + c.at, c.scale.size(), c.scale);
        });
    }
    refused(Status::nonfinite, {"blk.0.ffn_norm.weight", "index 3 "}, [](Parts &m) {
        m.tensors.at("blk.0.ffn_norm.weight")
            .bytes.replace(12, 4, gguf_number(std::numeric_limits<float>::quiet_NaN()));
    });
}

TEST_CASE("GgufFile: rope factors that are of another size, type or sign") {
    const auto factors = [](GgufType type, const std::vector<uint64_t> &shape, float third) {
        return [=](Parts &m) {
            std::string bytes;
            for (uint64_t i = 0; i < shape[0]; ++i) {
                bytes += gguf_number(i == 2 ? third : 1.0F);
            }
            m.tensors["rope_freqs.weight"] = {type, shape, bytes};
        };
    };
    Parts good;
    factors(GgufType::f32, {4}, 2)(good);
    CHECK(good.load().ropes[0].factors == std::vector<float>{1, 1, 2, 1});
    refused(Status::corrupt, {"rope_freqs.weight"}, factors(GgufType::f32, {5}, 2));
    refused(Status::corrupt, {"rope_freqs.weight"}, factors(GgufType::f32, {4, 1}, 2));
    refused(Status::corrupt, {"rope_freqs.weight"}, factors(GgufType::f16, {4}, 2));
    refused(Status::unsupported, {"rope_freqs.weight", "I32"},
            factors(static_cast<GgufType>(26), {4}, 2));
    for (const float bad : {0.0F, -2.0F, std::numeric_limits<float>::infinity(), 1e-40F,
                            std::numeric_limits<float>::quiet_NaN()}) {
        refused(Status::corrupt, {"rope_freqs.weight", "index 2"},
                factors(GgufType::f32, {4}, bad));
    }
    // Only llama's has them.
    refused(Status::unsupported, {"rope_freqs.weight", "gemma3"}, [&](Parts &m) {
        m.architecture = "gemma3";
        m.set("attention.sliding_window", 8);
        factors(GgufType::f32, {4}, 2)(m);
    });
}

TEST_CASE("GgufFile: a path that is no file, and a file that is none") {
    const TemporaryDirectory folder;
    expect_error(Status::not_found, {"absent.gguf"},
                 [&] { open_model(folder.file("absent.gguf"), {}); });
    write_bytes(folder.file("model.gguf"), "GGML and more");
    expect_error(Status::corrupt, {"model.gguf", "GGUF"},
                 [&] { open_model(folder.file("model.gguf"), {}); });
    // Cut anywhere, and with a byte of the header or the tables changed at random places.
    const std::string bytes = test::quantized_models().at("quantized/gemma3-tied").bytes();
    for (size_t cut = 0; cut < bytes.size(); cut = cut * 5 / 4 + 1) {
        write_bytes(folder.file("cut.gguf"), bytes.substr(0, cut));
        expect_error(Status::corrupt, {"cut.gguf"},
                     [&] { open_model(folder.file("cut.gguf"), {}); });
    }
}

} // namespace stasis
