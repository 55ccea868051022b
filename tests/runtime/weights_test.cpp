// The promises of runtime/weights.h: every supported model loads, values arrive as the contract
// rounds them, digests tell apart what differs and nothing else, and wrong tensors are refused.
#include "runtime/weights.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "runtime/kernels/bf16.h"
#include "runtime/threads.h"
#include "tests/data_files.h"
#include "tests/runtime/model_files.h"

namespace stasis {

namespace {

struct Loaded {
    Config config;
    Weights weights;
    ModelIdentity identity;
};

Loaded load(const std::string &directory, size_t thread_count = 2, const Watch &watch = {}) {
    Loaded loaded;
    loaded.config = read_config(directory);
    Threads threads(thread_count);
    loaded.weights = load_weights(directory, loaded.config, threads, watch, loaded.identity);
    return loaded;
}

// A copy of a bundled model whose tensors a test may change.
struct EditedModel {
    explicit EditedModel(const std::string &model) : source(test_data(model)) {
        tensors = read_tensors_of(source);
        std::filesystem::copy_file(source + "/config.json", directory.file("config.json"));
    }

    Loaded load(size_t padding = 0) const {
        // A new file each time: what was loaded before still maps the old one.
        std::filesystem::remove(directory.file("model.safetensors"));
        write_bytes(directory.file("model.safetensors"), safetensors_bytes(tensors, padding));
        return stasis::load(directory.path());
    }

    void set_config(const std::string &from, const std::string &to) const {
        std::string text = read_bytes(source + "/config.json");
        const size_t at = text.find(from);
        REQUIRE(at != std::string::npos);
        write_bytes(directory.file("config.json"), text.replace(at, from.size(), to));
    }

    std::string source;
    TemporaryDirectory directory;
    StoredTensors tensors;
};

// Names of the parts of two identities that differ: "attention 1", "model", ...
std::vector<std::string> differences(const ModelIdentity &a, const ModelIdentity &b) {
    std::vector<std::string> names;
    const auto compare = [&](const std::string &name, bool equal) {
        if (!equal) {
            names.push_back(name);
        }
    };
    compare("architecture", a.architecture == b.architecture);
    compare("config", a.config == b.config);
    compare("embeddings", a.embeddings == b.embeddings);
    compare("norms", a.norms == b.norms);
    REQUIRE(a.attention.size() == b.attention.size());
    for (size_t i = 0; i < a.attention.size(); ++i) {
        compare("attention " + std::to_string(i), a.attention[i] == b.attention[i]);
        compare("mlp " + std::to_string(i), a.mlp[i] == b.mlp[i]);
    }
    compare("head", a.head == b.head);
    compare("model", a.model == b.model);
    return names;
}

template <typename Value> void set_value(StoredTensor &tensor, size_t index, Value value) {
    REQUIRE((index + 1) * sizeof value <= tensor.bytes.size());
    std::memcpy(tensor.bytes.data() + index * sizeof value, &value, sizeof value);
}

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

void expect_refused(const EditedModel &model, Status status,
                    const std::vector<std::string> &parts) {
    expect_error(status, parts, [&] { model.load(); });
}

using Names = std::vector<std::string>;
const char *const kModels[] = {"recall-gemma3",
                               "recall-llama",
                               "zoo/gemma3-multimodal-prefix",
                               "zoo/gemma3-softcap-linear-rope",
                               "zoo/gemma3-text",
                               "zoo/llama-gqa-untied",
                               "zoo/llama-mha-bias-f16-sharded",
                               "zoo/llama-odd-sizes-f32",
                               "zoo/llama3-tied-ropescaled"};

} // namespace

TEST_CASE("weights: every bundled model loads, complete and with the shapes of its config") {
    for (const std::string model : kModels) {
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
        const size_t query = size_t{config.heads} * config.head_dim;
        const size_t key = size_t{config.kv_heads} * config.head_dim;
        for (const LayerWeights &layer : weights.layers) {
            check(layer.query, query, config.hidden, config.attention_bias);
            check(layer.key, key, config.hidden, config.attention_bias);
            check(layer.value, key, config.hidden, config.attention_bias);
            check(layer.output, config.hidden, query, config.attention_bias);
            check(layer.gate, config.intermediate, config.hidden, config.mlp_bias);
            check(layer.up, config.intermediate, config.hidden, config.mlp_bias);
            check(layer.down, config.hidden, config.intermediate, config.mlp_bias);
            CHECK(layer.attention_norm != nullptr);
            CHECK(layer.mlp_norm != nullptr);
            CHECK((layer.post_attention_norm != nullptr) == config.post_norms);
            CHECK((layer.post_mlp_norm != nullptr) == config.post_norms);
            CHECK((layer.query_norm != nullptr) == config.query_key_norm);
            CHECK((layer.key_norm != nullptr) == config.query_key_norm);
        }
        const bool wide =
            model.find("f16") != std::string::npos || model.find("f32") != std::string::npos;
        CHECK(weights.converted == wide);
        CHECK(weights.converted_storage.empty() == !wide); // bf16 stays in the mapping
        CHECK(loaded.identity.architecture == config.architecture);
        CHECK(loaded.identity.config == describe(config));
    }
}

TEST_CASE("weights: a published Llama trained elsewhere loads") {
    const std::string directory = shared_data("stories260K");
    if (directory.empty()) {
        STASIS_SKIP("../shared/data/stories260K is not beside the clone");
    }
    CHECK(load(directory).weights.layers.size() == 5);
}

TEST_CASE("weights: bf16 matrices are those of the file, norms are 1 + w where the model says so") {
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

TEST_CASE("weights: C6: f32 and f16 matrices are rounded to bf16, biases and norms stay f32") {
    EditedModel wide("zoo/llama-odd-sizes-f32");
    StoredTensor &down = wide.tensors.at("model.layers.1.mlp.down_proj.weight");
    set_value(down, 0, std::bit_cast<float>(0x3F808000U)); // half-way, to even: down
    set_value(down, 1, std::bit_cast<float>(0x3F818000U)); // half-way, to even: up
    set_value(down, 2, 0x1p-130F);                         // denormal
    StoredTensor &norm = wide.tensors.at("model.norm.weight");
    set_value(norm, 0, 1.0000001F);
    const Loaded loaded = wide.load();
    const uint16_t *rounded = loaded.weights.layers[1].down.data;
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
    const Matrix &matrix = halves.weights.layers[0].up;
    for (size_t i = 0; i < up.bytes.size() / 2; ++i) {
        CHECK(matrix.data[i] == kernels::f32_to_bf16(f16_value(value_of<uint16_t>(up, i))));
    }
    for (size_t i = 0; i < bias.bytes.size() / 2; ++i) {
        CHECK(std::bit_cast<uint32_t>(matrix.bias[i]) ==
              std::bit_cast<uint32_t>(f16_value(value_of<uint16_t>(bias, i))));
    }
}

TEST_CASE("weights: a payload at an odd address is copied, with the same bits and digests") {
    const EditedModel model("zoo/llama-gqa-untied");
    const Loaded plain = model.load(0);
    const Loaded other = model.load(1);
    CHECK(plain.weights.converted_storage.empty() != other.weights.converted_storage.empty());
    CHECK_FALSE(plain.weights.converted);
    CHECK_FALSE(other.weights.converted);
    CHECK(differences(plain.identity, other.identity).empty());
    for (const Loaded *loaded : {&plain, &other}) {
        const Matrix &down = loaded->weights.layers[2].down;
        const StoredTensor &stored = model.tensors.at("model.layers.2.mlp.down_proj.weight");
        CHECK(reinterpret_cast<uintptr_t>(down.data) % 2 == 0);
        CHECK(std::memcmp(down.data, stored.bytes.data(), stored.bytes.size()) == 0);
    }
}

TEST_CASE("weights: digests do not depend on shards, prefixes, order or threads") {
    const EditedModel sharded("zoo/llama-mha-bias-f16-sharded");
    CHECK(differences(load(sharded.source).identity, sharded.load().identity).empty());

    EditedModel multimodal("zoo/gemma3-multimodal-prefix");
    const ModelIdentity published = multimodal.load().identity;
    EditedModel renamed("zoo/gemma3-multimodal-prefix");
    renamed.tensors.clear();
    for (const auto &[name, tensor] : multimodal.tensors) {
        const std::string old_prefix = "language_model.model.";
        REQUIRE(name.substr(0, old_prefix.size()) == old_prefix);
        renamed.tensors["model.language_model." + name.substr(old_prefix.size())] = tensor;
    }
    CHECK(differences(published, renamed.load().identity).empty());

    for (const size_t count : {1, 2, 3, 7}) {
        CHECK(differences(published, load(multimodal.source, count).identity).empty());
    }
}

TEST_CASE("weights: one flipped bit changes its own group's digest, its layer named") {
    for (const std::string source : {"zoo/llama-gqa-untied", "zoo/gemma3-text"}) {
        EditedModel model(source);
        const ModelIdentity before = model.load().identity;
        for (auto &entry : model.tensors) {
            const std::string &name = entry.first;
            CAPTURE(name);
            std::string group = "norms";
            if (name.find("embed_tokens") != std::string::npos) {
                group = "embeddings";
            } else if (name.find("lm_head") != std::string::npos) {
                group = "head";
            } else if (name.find("_proj") != std::string::npos) {
                const std::string layer = name.substr(name.find("layers.") + 7, 1);
                group = (name.find("mlp") != std::string::npos ? "mlp " : "attention ") + layer;
            }
            Names expected{group, "model"};
            if (group == "embeddings" && source == "zoo/gemma3-text") {
                expected = {"embeddings", "head", "model"};
            }
            std::string &bytes = entry.second.bytes;
            char &byte = bytes[bytes.size() / 2 & ~size_t{1}];
            byte = static_cast<char>(byte ^ 1);
            CHECK(differences(before, model.load().identity) == expected);
            byte = static_cast<char>(byte ^ 1);
        }
        CHECK(differences(before, model.load().identity).empty());
    }
}

TEST_CASE("weights: tensors swapped between layers change both layers") {
    EditedModel model("zoo/llama-gqa-untied");
    const ModelIdentity before = model.load().identity;
    std::swap(model.tensors.at("model.layers.0.mlp.up_proj.weight"),
              model.tensors.at("model.layers.1.mlp.up_proj.weight"));
    CHECK(differences(before, model.load().identity) == Names{"mlp 0", "mlp 1", "model"});
}

TEST_CASE("weights: the norm conventions are in the norms' digest") {
    const EditedModel model("zoo/gemma3-text");
    const ModelIdentity before = model.load().identity;
    model.set_config("\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 1e-05");
    CHECK(differences(before, model.load().identity) == Names{"config", "norms", "model"});
}

TEST_CASE("weights: a tensor above one piece is hashed and checked to its end") {
    // 1.5 MiB of embeddings: two pieces.
    EditedModel model("zoo/llama-gqa-untied");
    const size_t rows = 12288;
    model.set_config("\"vocab_size\": 192", "\"vocab_size\": 12288");
    for (const char *name : {"model.embed_tokens.weight", "lm_head.weight"}) {
        model.tensors[name] = {"BF16", {rows, 64}, std::string(rows * 64 * 2, '\x01')};
    }
    const ModelIdentity before = model.load().identity;
    StoredTensor &head = model.tensors.at("lm_head.weight");
    for (const size_t index : {size_t{0}, size_t{524287}, size_t{524288}, rows * 64 - 1}) {
        CAPTURE(index);
        const StoredTensor saved = head;
        set_value<uint16_t>(head, index, 0x3F80);
        CHECK(differences(before, model.load().identity) == Names{"head", "model"});
        set_value<uint16_t>(head, index, 0x7F80);
        expect_refused(model, Status::nonfinite, {"lm_head.weight", std::to_string(index)});
        head = saved;
    }
}

TEST_CASE("C9: non-finite weights are refused, with tensor and index") {
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

TEST_CASE("weights: wrong tensors are refused by name") {
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

TEST_CASE("weights: tensors without influence are let pass, and are in no digest") {
    EditedModel llama("zoo/llama3-tied-ropescaled");
    const ModelIdentity before = llama.load().identity;
    llama.tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = {"F32", {1}, "abcd"};
    llama.tensors["lm_head.weight"] = llama.tensors.at("model.embed_tokens.weight");
    CHECK(differences(before, llama.load().identity).empty());

    EditedModel gemma("zoo/gemma3-multimodal-prefix");
    const ModelIdentity text_only = gemma.load().identity;
    gemma.tensors["vision_tower.vision_model.post_layernorm.weight"] = {"F32", {1}, "abcd"};
    gemma.tensors["multi_modal_projector.mm_soft_emb_norm.weight"] = {"I16", {1}, "ab"};
    CHECK(differences(text_only, gemma.load().identity).empty());
}

TEST_CASE("weights: progress counts every byte, and loading can be stopped or cancelled") {
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
