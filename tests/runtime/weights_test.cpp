// The promises of runtime/model/weights.h about what is loaded: every supported model, values
// as the contract rounds them, and wrong tensors refused by name.
#include "runtime/model/weights.h"

#include <doctest/doctest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

#include "runtime/kernels/bf16.h"
#include "tests/runtime/edited_model.h"
#include "tests/runtime/models.h"

namespace stasis {

namespace {

template <typename Value> Value value_of(const StoredTensor &tensor, size_t index) {
    REQUIRE((index + 1) * sizeof(Value) <= tensor.bytes.size());
    Value value;
    std::memcpy(&value, tensor.bytes.data() + index * sizeof value, sizeof value);
    return value;
}

// f16 to f32 by its definition (IEEE 754-2019, 3.4), independently of the product's bit tricks.
float f16_value(uint16_t bits) {
    const int exponent = (bits >> 10) & 0x1F;
    const int fraction = bits & 0x3FF;
    const double magnitude =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    return static_cast<float>((bits & 0x8000) != 0 ? -magnitude : magnitude);
}

} // namespace

TEST_CASE("load_weights: every bundled model loads, complete and with the shapes of its config") {
    for (const std::string &model : test::bundled()) {
        CAPTURE(model);
        const Loaded loaded = load(test_data(model));
        const Config &config = loaded.config;
        const Weights &weights = loaded.weights;
        const auto check = [&](const Matrix &matrix, size_t rows, size_t columns, bool bias) {
            CHECK(matrix.data != nullptr);
            CHECK(matrix.rows == rows);
            CHECK(matrix.columns == columns);
            CHECK((matrix.bias != nullptr) == bias);
        };
        check(weights.embeddings, config.vocabulary, config.hidden, false);
        check(weights.head, config.vocabulary, config.hidden, false);
        CHECK((weights.head.data == weights.embeddings.data) == config.tied_head);
        CHECK((loaded.identity.head == loaded.identity.embeddings) == config.tied_head);
        CHECK(weights.final_norm != nullptr);
        REQUIRE(weights.layers.size() == config.layers);
        const auto check_mlp = [&](const Mlp &mlp, size_t intermediate) {
            check(mlp.gate, intermediate, config.hidden, config.mlp_bias);
            check(mlp.up, intermediate, config.hidden, config.mlp_bias);
            check(mlp.down, config.hidden, intermediate, config.mlp_bias);
        };
        for (size_t i = 0; i < config.layers; ++i) {
            const LayerWeights &layer = weights.layers[i];
            const LayerConfig &kind = config.layer[i];
            const size_t head_dim = config.head_dim_of(kind), query = config.heads * head_dim;
            const size_t key = config.kv_heads_of(kind) * head_dim;
            check(layer.query, query, config.hidden, config.attention_bias);
            CHECK((layer.key.data != nullptr) == kind.own_keys());
            CHECK((layer.value.data != nullptr) ==
                  (kind.own_keys() && !config.keys_as_values(kind)));
            if (layer.key.data != nullptr) {
                check(layer.key, key, config.hidden, config.attention_bias);
            }
            if (layer.value.data != nullptr) {
                check(layer.value, key, config.hidden, config.attention_bias);
            }
            check(layer.output, config.hidden, query, config.output_bias);
            if (config.experts.count == 0 || config.experts.beside_mlp) {
                check_mlp(layer.mlp, config.intermediate_of(kind));
            }
            if (config.experts.count != 0) {
                check(layer.experts.router, config.experts.count, config.hidden, false);
                REQUIRE(layer.experts.each.size() == config.experts.count);
                for (const Mlp &expert : layer.experts.each) {
                    check_mlp(expert, config.experts.intermediate);
                }
            }
            CHECK((layer.attention_norm != nullptr) == config.pre_norms);
            CHECK((layer.mlp_norm != nullptr) == config.pre_norms);
            CHECK((layer.post_attention_norm != nullptr) == config.post_norms);
            CHECK((layer.post_mlp_norm != nullptr) == config.post_norms);
            CHECK((layer.query_norm != nullptr) == config.query_key_norm);
            CHECK((layer.key_norm != nullptr) == (config.query_key_norm && kind.own_keys()));
        }
        const bool wide =
            model.find("f16") != std::string::npos || model.find("f32") != std::string::npos;
        CHECK(weights.converted == wide);
        CHECK(weights.storage.empty() == !wide); // bf16 stays in the mapping
        CHECK(loaded.identity.architecture == config.architecture);
        CHECK(loaded.identity.config == describe(config));
    }
}

TEST_CASE("load_weights: a published Llama trained elsewhere loads") {
    const std::string directory = shared_data("stories260K");
    if (directory.empty()) {
        STASIS_SKIP("../shared/data/stories260K is not beside the clone");
    }
    CHECK(load(directory).weights.layers.size() == 5);
}

TEST_CASE(
    "load_weights: bf16 matrices are those of the file, norms are 1 + w where the model says so") {
    EditedModel gemma("zoo/gemma3-text");
    const Loaded loaded = gemma.load();
    const StoredTensor &query = gemma.tensors.at("model.layers.2.self_attn.q_proj.weight");
    CHECK(std::memcmp(loaded.weights.layers[2].query.data, query.bytes.data(),
                      query.bytes.size()) == 0);
    // Each norm is where its name says.
    const LayerWeights &layer = loaded.weights.layers[3];
    for (const auto &norm : std::map<std::string, const float *>{
             {"input_layernorm", layer.attention_norm},
             {"post_attention_layernorm", layer.post_attention_norm},
             {"pre_feedforward_layernorm", layer.mlp_norm},
             {"post_feedforward_layernorm", layer.post_mlp_norm},
             {"self_attn.q_norm", layer.query_norm},
             {"self_attn.k_norm", layer.key_norm}}) {
        CAPTURE(norm.first);
        const StoredTensor &stored = gemma.tensors.at("model.layers.3." + norm.first + ".weight");
        for (size_t i = 0; i < stored.shape[0]; ++i) {
            CHECK(norm.second[i] == 1.0F + kernels::bf16_to_f32(value_of<uint16_t>(stored, i)));
        }
    }
    EditedModel llama("zoo/llama-gqa-untied");
    const Loaded plain = llama.load();
    for (const auto &norm : std::map<std::string, const float *>{
             {"model.layers.1.input_layernorm", plain.weights.layers[1].attention_norm},
             {"model.layers.1.post_attention_layernorm", plain.weights.layers[1].mlp_norm},
             {"model.norm", plain.weights.final_norm}}) {
        CAPTURE(norm.first);
        const StoredTensor &stored = llama.tensors.at(norm.first + ".weight");
        for (size_t i = 0; i < stored.shape[0]; ++i) {
            CHECK(norm.second[i] == kernels::bf16_to_f32(value_of<uint16_t>(stored, i)));
        }
    }
}

TEST_CASE("load_weights: C6: f32 and f16 matrices are rounded to bf16, biases and norms stay f32") {
    EditedModel wide("zoo/llama-odd-sizes-f32");
    StoredTensor &down = wide.tensors.at("model.layers.1.mlp.down_proj.weight");
    set_value(down, 0, std::bit_cast<float>(0x3F808000U)); // half-way, to even: down
    set_value(down, 1, std::bit_cast<float>(0x3F818000U)); // half-way, to even: up
    set_value(down, 2, 0x1p-130F);                         // denormal
    StoredTensor &norm = wide.tensors.at("model.norm.weight");
    set_value(norm, 0, 1.0000001F);
    const Loaded loaded = wide.load();
    const uint16_t *rounded = loaded.weights.layers[1].mlp.down.data;
    CHECK(rounded[0] == 0x3F80);
    CHECK(rounded[1] == 0x3F82);
    CHECK(rounded[2] == 0);
    for (size_t i = 0; i < down.bytes.size() / 4; ++i) {
        CHECK(rounded[i] == kernels::f32_to_bf16(value_of<float>(down, i)));
    }
    CHECK(loaded.weights.final_norm[0] == 1.0000001F);
    CHECK(std::memcmp(loaded.weights.final_norm, norm.bytes.data(), norm.bytes.size()) == 0);

    EditedModel half("zoo/llama-mha-bias-f16-sharded");
    StoredTensor &up = half.tensors.at("model.layers.0.mlp.up_proj.weight");
    StoredTensor &bias = half.tensors.at("model.layers.0.mlp.up_proj.bias");
    // The denormals and the extremes, positive and negative.
    const uint16_t special[] = {0x0000, 0x0001, 0x03FF, 0x0400, 0x7BFF,
                                0x8000, 0x8001, 0x83FF, 0xFBFF, 0x3555};
    for (size_t i = 0; i < std::size(special); ++i) {
        set_value(up, i, special[i]);
        set_value(bias, i, special[i]);
    }
    const Loaded halves = half.load();
    const Matrix &matrix = halves.weights.layers[0].mlp.up;
    for (size_t i = 0; i < up.bytes.size() / 2; ++i) {
        CHECK(matrix.data[i] == kernels::f32_to_bf16(f16_value(value_of<uint16_t>(up, i))));
    }
    for (size_t i = 0; i < bias.bytes.size() / 2; ++i) {
        CHECK(std::bit_cast<uint32_t>(matrix.bias[i]) ==
              std::bit_cast<uint32_t>(f16_value(value_of<uint16_t>(bias, i))));
    }
}

TEST_CASE("load_weights: a payload at an odd address is copied, with the same bits and digests") {
    const EditedModel model("zoo/llama-gqa-untied");
    const Loaded plain = model.load(0);
    const Loaded other = model.load(1);
    CHECK(plain.weights.storage.empty() != other.weights.storage.empty());
    CHECK_FALSE(plain.weights.converted);
    CHECK_FALSE(other.weights.converted);
    CHECK(differences(plain.identity, other.identity).empty());
    for (const Loaded *loaded : {&plain, &other}) {
        const Matrix &down = loaded->weights.layers[2].mlp.down;
        const StoredTensor &stored = model.tensors.at("model.layers.2.mlp.down_proj.weight");
        CHECK(reinterpret_cast<uintptr_t>(down.data) % 2 == 0);
        CHECK(std::memcmp(down.data, stored.bytes.data(), stored.bytes.size()) == 0);
    }
}

TEST_CASE("load_weights: C9: non-finite weights are refused, with tensor and index") {
    struct Case {
        const char *model;
        const char *tensor;
        std::function<void(StoredTensor &)> spoil;
    };
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const Case cases[] = {
        {"zoo/llama-gqa-untied", "model.norm.weight",
         [](StoredTensor &t) { set_value<uint16_t>(t, 5, 0xFF80); }},
        {"zoo/llama-gqa-untied", "model.layers.1.mlp.up_proj.weight",
         [](StoredTensor &t) { set_value<uint16_t>(t, 5, 0x7FC0); }},
        {"zoo/llama-mha-bias-f16-sharded", "model.layers.0.self_attn.q_proj.bias",
         [](StoredTensor &t) { set_value<uint16_t>(t, 5, 0x7C00); }},
        {"zoo/llama-mha-bias-f16-sharded", "lm_head.weight",
         [](StoredTensor &t) { set_value<uint16_t>(t, 5, 0xFE01); }},
        {"zoo/llama-odd-sizes-f32", "model.embed_tokens.weight",
         [&](StoredTensor &t) { set_value(t, 5, -infinity); }},
        {"zoo/llama-odd-sizes-f32", "model.layers.2.input_layernorm.weight",
         [&](StoredTensor &t) { set_value(t, 5, nan); }},
        // Finite, but not as bf16.
        {"zoo/llama-odd-sizes-f32", "model.embed_tokens.weight",
         [](StoredTensor &t) { set_value(t, 5, std::numeric_limits<float>::max()); }},
    };
    for (const Case &entry : cases) {
        CAPTURE(entry.tensor);
        EditedModel model(entry.model);
        entry.spoil(model.tensors.at(entry.tensor));
        const std::string name = entry.tensor;
        const size_t prefix = name.rfind("model.", 0) == 0 ? 6 : 0;
        expect_refused(model, Status::nonfinite, {name.substr(prefix), "index 5 "});
    }
}

TEST_CASE("load_weights: C9: a non-finite value is found at every index of a matrix of odd size") {
    const TemporaryDirectory directory;
    write_bytes(directory.file("config.json"),
                R"({"model_type":"llama","hidden_size":5,"intermediate_size":3,"head_dim":2,
                "num_hidden_layers":1,"num_attention_heads":1,"vocab_size":7,
                "tie_word_embeddings":true})");
    const auto tensor = [](uint64_t rows, uint64_t columns) {
        return StoredTensor{"BF16", {rows, columns}, std::string(rows * columns * 2, '\0')};
    };
    const StoredTensor norm{"BF16", {5}, std::string(10, '\0')};
    const std::string layer = "model.layers.0.";
    StoredTensors tensors = {{"model.embed_tokens.weight", tensor(7, 5)},
                             {"model.norm.weight", norm},
                             {layer + "input_layernorm.weight", norm},
                             {layer + "post_attention_layernorm.weight", norm},
                             {layer + "self_attn.q_proj.weight", tensor(2, 5)},
                             {layer + "self_attn.k_proj.weight", tensor(2, 5)},
                             {layer + "self_attn.v_proj.weight", tensor(2, 5)},
                             {layer + "self_attn.o_proj.weight", tensor(5, 2)},
                             {layer + "mlp.gate_proj.weight", tensor(3, 5)},
                             {layer + "mlp.up_proj.weight", tensor(3, 5)},
                             {layer + "mlp.down_proj.weight", tensor(5, 3)}};
    StoredTensor &embeddings = tensors.at("model.embed_tokens.weight");
    for (size_t index = 0; index < 35; ++index) {
        for (const uint16_t value : {0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7F81, 0xFFFF}) {
            CAPTURE(index);
            CAPTURE(value);
            set_value<uint16_t>(embeddings, index, value);
            write_bytes(directory.file("model.safetensors"), safetensors_bytes(tensors));
            if ((value & 0x7F80) == 0x7F80) {
                expect_error(Status::nonfinite, {"index " + std::to_string(index) + " "},
                             [&] { load(directory.path(), 1); });
            } else {
                load(directory.path(), 1); // the largest finite values
            }
        }
        set_value<uint16_t>(embeddings, index, 0);
    }
}

TEST_CASE("load_weights: wrong tensors are refused by name") {
    const std::string query = "model.layers.1.self_attn.q_proj.weight";
    EditedModel model("zoo/llama-gqa-untied");
    const StoredTensors good = model.tensors;
    for (const auto &[name, tensor] : good) {
        model.tensors.erase(name);
        expect_refused(model, Status::corrupt, {name, "missing"});
        model.tensors = good;
    }
    model.tensors[query].shape = {32, 128};
    expect_refused(model, Status::corrupt, {query, "[64, 64]", "[32, 128]"});
    model.tensors[query].shape = {4096};
    expect_refused(model, Status::corrupt, {query, "[64, 64]", "[4096]"});
    model.tensors = good;
    model.tensors[query].dtype = "I16";
    expect_refused(model, Status::unsupported, {query, "I16"});
    for (const char *extra :
         {"model.layers.3.mlp.up_proj.weight", "model.layers.0.self_attn.q_norm.weight",
          "model.layers.0.self_attn.q_proj.bias", "vision_tower.weight",
          "model.layers.0.mlp.experts.weight", "x"}) {
        for (const char *dtype : {"BF16", "I16"}) {
            model.tensors = good;
            model.tensors[extra] = {dtype, {1}, "ab"};
            expect_refused(model, Status::unsupported, {extra});
        }
    }
    model.tensors = good;
    model.set_config("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 4");
    expect_refused(model, Status::corrupt, {"model.layers.3.", "missing"});
    model.set_config("\"vocab_size\": 192", "\"vocab_size\": 193");
    expect_refused(model, Status::corrupt, {"embed_tokens", "[193, 64]", "[192, 64]"});
}

TEST_CASE("load_weights: progress counts every byte, and loading can be stopped or cancelled") {
    struct Progress {
        std::vector<uint64_t> done;
        uint64_t total = 0;
        bool go_on = true;
    } progress;
    Watch watch;
    watch.user = &progress;
    watch.progress = [](void *user, uint64_t done, uint64_t total) {
        auto *self = static_cast<Progress *>(user);
        self->done.push_back(done);
        self->total = total;
        return self->go_on;
    };
    const std::string directory = test_data("zoo/llama-gqa-untied");
    load(directory, 2, watch);
    REQUIRE(progress.done.size() >= 2);
    CHECK(progress.done.front() == 0);
    CHECK(progress.done.back() == progress.total);
    uint64_t bytes = 0;
    for (const auto &[name, tensor] : read_tensors_of(directory)) {
        bytes += tensor.bytes.size();
    }
    CHECK(progress.total == bytes);
    progress.go_on = false;
    expect_error(Status::stopped, {}, [&] { load(directory, 2, watch); });
    const std::atomic<bool> cancelled{true};
    watch.cancel = &cancelled;
    expect_error(Status::cancelled, {}, [&] { load(directory, 2, watch); });
}

} // namespace stasis
