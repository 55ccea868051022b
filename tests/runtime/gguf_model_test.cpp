// Models in GGUF files compute what their Hugging Face directories compute, to the bit.
#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/model/rope.h"
#include "tests/runtime/edited_model.h"
#include "tests/runtime/gguf_model.h"
#include "tests/runtime/golden_deviation.h"
#include "tests/runtime/models.h"

namespace stasis {

using test::GgufModel;

namespace {

// In a folder that is there as long as this is.
struct OnDisk {
    explicit OnDisk(const std::vector<std::string> &files) {
        for (size_t i = 0; i < files.size(); ++i) {
            char name[64] = "model.gguf";
            if (files.size() > 1) {
                std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.gguf", i + 1, files.size());
            }
            write_bytes(folder.file(name), files[i]);
            first = i == 0 ? folder.file(name) : first;
        }
    }
    explicit OnDisk(const std::string &file) : OnDisk(std::vector<std::string>{file}) {}
    explicit OnDisk(const GgufModel &model) : OnDisk(model.files()) {}

    TemporaryDirectory folder;
    std::string first;
};

std::vector<uint16_t> keys_and_values(Session &session, uint64_t begin) {
    const Config &config = session.model()->config;
    const uint64_t end = session.position();
    const size_t size = (end - begin) * config.kv_heads * config.head_dim;
    std::vector<uint16_t> out(size * 2 * config.layers);
    for (uint32_t layer = 0; layer < config.layers; ++layer) {
        uint16_t *at = out.data() + size * 2 * layer;
        session.copy_kv(layer, begin, end, at, at + size);
    }
    return out;
}

// Logits of every position, keys and values, and what is decoded then.
void check_equal(const std::shared_ptr<Model> &gguf, const std::shared_ptr<Model> &directory) {
    const kernels::FloatEnvironment environment;
    const std::vector<uint32_t> tokens = test::tokens_for(*directory, 150);
    Session a(gguf, {}), b(directory, {});
    const auto rows = test::append_with_logits(a, tokens),
               expected = test::append_with_logits(b, tokens);
    REQUIRE(rows.size() == tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
        REQUIRE_MESSAGE(test::same_bits(rows[i], expected[i]), "position " << i);
    }
    const uint64_t begin = b.info().window_begin;
    REQUIRE(a.info().window_begin == begin);
    REQUIRE(keys_and_values(a, begin) == keys_and_values(b, begin));
    for (size_t i = 0; i < 40; ++i) {
        REQUIRE(a.decode() == b.decode());
    }
}

// `wavelengths` of Llama 3's scaling as converters write it: what each frequency is divided by.
std::string rope_factors(const Rope &rope, uint32_t head_dim) {
    std::string bytes;
    for (uint32_t i = 0; i < head_dim / 2; ++i) {
        const double context = rope.original_context;
        const double wave = 2 * 3.14159265358979323846 * std::pow(rope.base, 2.0 * i / head_dim);
        const double low = context / rope.low_frequency_factor,
                     high = context / rope.high_frequency_factor;
        const double smooth = (context / wave - rope.low_frequency_factor) /
                              (rope.high_frequency_factor - rope.low_frequency_factor);
        const double factor = wave < high  ? 1
                              : wave > low ? rope.factor
                                           : 1 / ((1 - smooth) / rope.factor + smooth);
        bytes += gguf_number(static_cast<float>(factor));
    }
    return bytes;
}

// The directory's llama3 rope as a tensor of factors.
std::string with_factors(const GgufModel &model) {
    GgufModel plain = model;
    plain.config.ropes[0].scaling = RopeScaling::none;
    GgufWriter writer;
    plain.describe(writer);
    writer.tensor("rope_freqs.weight", GgufType::f32, {model.config.head_dim / 2},
                  rope_factors(model.config.ropes[0], model.config.head_dim));
    for (const auto &[name, tensor] : plain.tensors) {
        plain.store(writer, name, tensor);
    }
    return writer.bytes();
}

} // namespace

TEST_CASE("open_model: a GGUF file computes what the directory of the same weights computes") {
    for (const std::string &name : test::bundled()) {
        CAPTURE(name);
        const Config &config = test::open(name)->config;
        if (config.ropes[0].scaling == RopeScaling::llama3 || config.value_norm) {
            continue; // below; gemma4_test.cpp
        }
        const GgufModel model(test_data(name));
        const OnDisk disk(model);
        const auto opened = open_model(disk.first, {});
        check_equal(opened, test::open(name));
        CHECK(opened->config.bos == test::open(name)->config.bos);
        CHECK(opened->config.end_tokens == test::open(name)->config.end_tokens);
        CHECK(opened->tokenizer == nullptr);
        CHECK(opened->weights.converted == test::open(name)->weights.converted);
    }
}

TEST_CASE("open_model: a GGUF file of wide weights computes what it computes with the same ones in "
          "bf16") {
    for (const char *name : {"zoo/llama-gqa-untied", "zoo/gemma3-text", "zoo/qwen2-bias-tied"}) {
        CAPTURE(name);
        GgufModel model(test_data(name));
        model.wide = true;
        const OnDisk disk(model);
        const auto opened = open_model(disk.first, {});
        CHECK(opened->weights.converted);
        check_equal(opened, test::open(name));
    }
}

TEST_CASE("open_model: a GGUF file need not say what follows from its architecture") {
    for (const char *name : {"zoo/gemma3-text", "recall-gemma3", "recall-llama"}) {
        CAPTURE(name);
        GgufModel model(test_data(name));
        model.terse = true;
        const OnDisk disk(model);
        check_equal(open_model(disk.first, {}), test::open(name));
    }
}

TEST_CASE("open_model: a GGUF model split into files is the model in one") {
    const GgufModel model(test_data("zoo/llama-gqa-untied"));
    const OnDisk whole(model);
    const auto one = open_model(whole.first, {});
    for (const size_t count : {2, 3}) {
        const OnDisk disk(model.files(count));
        const auto opened = open_model(disk.first, {});
        CHECK(opened->identity.model == one->identity.model);
        CHECK(differences(opened->identity, one->identity).empty());
        check_equal(opened, test::open("zoo/llama-gqa-untied"));
        const std::string last = disk.folder.file("model-0000" + std::to_string(count) +
                                                  "-of-0000" + std::to_string(count) + ".gguf");
        expect_error(Status::corrupt, {"open the first"}, [&] { open_model(last, {}); });
        std::filesystem::remove(last);
        expect_error(Status::not_found, {last}, [&] { open_model(disk.first, {}); });
    }
}

TEST_CASE(
    "open_model: Phi-3's fused matrices in a GGUF file compute what the same rows compute apart") {
    GgufModel model(test_data("zoo/mistral-window"));
    model.fuse();
    const OnDisk disk(model);
    check_equal(open_model(disk.first, {}), test::open("zoo/mistral-window"));
}

TEST_CASE("open_model: Llama 3's rope factors in a GGUF file stand for its scaling") {
    // If no frequency is in the band that is blended, the factors are exact, and so is everything
    // else.
    EditedModel edited("zoo/llama3-tied-ropescaled");
    edited.set_config("\"high_freq_factor\": 4.0", "\"high_freq_factor\": 1.0001");
    edited.load(); // writes the tensors
    const OnDisk exact(with_factors(GgufModel(edited.directory.path())));
    check_equal(open_model(exact.first, {}), open_model(edited.directory.path(), {}));

    const std::string name = "zoo/llama3-tied-ropescaled";
    const OnDisk disk(with_factors(GgufModel(test_data(name))));
    const auto opened = open_model(disk.first, {});
    CHECK(test::within(test::measure(opened, test::golden(name))));
    opened->config.ropes[0].factors[5] = 1; // is noticed
    opened->rope_frequencies[0] = rope_frequencies(opened->config.ropes[0], 16);
    CHECK(!test::within(test::measure(opened, test::golden(name))));
}

TEST_CASE("open_model: a GGUF model's digests tell apart what computes differently") {
    const GgufModel model(test_data("zoo/llama-gqa-untied"));
    const auto opened = open_model(OnDisk(model).first, {});
    const auto change = [&](const std::string &tensor) {
        GgufModel changed = model;
        std::string &bytes = changed.tensors.at(tensor).bytes;
        bytes[bytes.size() / 2 & ~size_t{1}] ^= 1;
        return differences(open_model(OnDisk(changed).first, {})->identity, opened->identity);
    };
    using Names = std::vector<std::string>;
    CHECK(change("model.layers.1.self_attn.k_proj.weight") == Names{"attention 1", "model"});
    CHECK(change("model.layers.2.mlp.down_proj.weight") == Names{"mlp 2", "model"});
    CHECK(change("model.embed_tokens.weight") == Names{"embeddings", "model"});
    CHECK(change("lm_head.weight") == Names{"head", "model"});
    CHECK(change("model.norm.weight") == Names{"norms", "model"});
    // The same rows, but without the order that llama's have in such files: another description.
    const auto directory = test::open("zoo/llama-gqa-untied");
    CHECK(opened->identity.config != directory->identity.config);
    CHECK(opened->identity.model != directory->identity.model);
}

TEST_CASE("open_model: models of random integer weights are no trivial ones") {
    const kernels::FloatEnvironment environment;
    for (const auto &entry : test::quantized_models()) {
        CAPTURE(entry.first);
        const auto model = test::open(entry.first);
        Session session(model, {});
        std::set<ptrdiff_t> best;
        double squares = 0;
        for (const auto &row : test::append_with_logits(session, test::tokens_for(*model, 100))) {
            best.insert(std::max_element(row.begin(), row.end()) - row.begin());
            for (const float logit : row) {
                squares += double{logit} * double{logit} / static_cast<double>(row.size()) / 100;
            }
        }
        CHECK(best.size() > 20);
        CHECK(squares > 0.1);
        CHECK(squares < 1e4);
    }
}

TEST_CASE("open_model: integer matrices are copied into strips, each byte once; embeddings stay in "
          "the file") {
    for (const bool tied : {false, true}) {
        CAPTURE(tied);
        test::QuantizedModel described = test::quantized_models().at("quantized/llama");
        if (tied) {
            described.head.clear();
        }
        const OnDisk file(described.bytes());
        struct Seen {
            uint64_t done = 0, total = 0;
        } seen;
        Watch watch;
        watch.user = &seen;
        watch.progress = [](void *user, uint64_t done, uint64_t total) {
            *static_cast<Seen *>(user) = {done, total};
            return true;
        };
        ModelOptions options;
        options.watch = watch;
        const auto model = open_model(file.first, options);
        const Weights &weights = model->weights;
        uint64_t bytes = 0;
        const auto check = [&](const Matrix &matrix) {
            REQUIRE(matrix.strips != nullptr);
            CHECK(matrix.data == nullptr);
            bytes += kernels::strips_bytes(matrix.quant, matrix.rows, matrix.columns);
        };
        for (const LayerWeights &layer : weights.layers) {
            for (const Matrix *matrix : {&layer.query, &layer.key, &layer.value, &layer.output,
                                         &layer.mlp.gate, &layer.mlp.up, &layer.mlp.down}) {
                check(*matrix);
            }
        }
        check(weights.head);
        REQUIRE(weights.storage.size() == 1);
        CHECK(weights.storage[0]->size_bytes() == bytes);
        CHECK(weights.embedding_blocks != nullptr);
        CHECK((weights.embeddings.strips != nullptr) == tied);
        CHECK(seen.done == seen.total);
        CHECK(seen.total == weights.stored_bytes + bytes);
    }
}

TEST_CASE("open_model: opening a model of integers can be stopped at each step, and lets go of "
          "everything") {
    const OnDisk file(test::quantized_models().at("quantized/llama").bytes());
    struct Seen {
        int calls = 0, stop_at = 0;
    } seen;
    ModelOptions options;
    options.watch.user = &seen;
    options.watch.progress = [](void *user, uint64_t, uint64_t) {
        auto &self = *static_cast<Seen *>(user);
        return self.calls++ != self.stop_at;
    };
    int stopped = 0;
    for (bool open = false; !open; ++seen.stop_at) {
        seen.calls = 0;
        try {
            open_model(file.first, options);
            open = true;
        } catch (const Error &error) {
            CHECK(error.status() == Status::stopped);
            ++stopped;
        }
    }
    CHECK(stopped == 2 + 15); // the one batch that is read, 15 matrices put into strips, the end
}

TEST_CASE("open_model: a bit of integer weights, and a factor of the rope, are part of a model's "
          "identity") {
    test::QuantizedModel model = test::quantized_models().at("quantized/llama");
    const std::string bytes = model.bytes();
    const auto identity = [](const std::string &file) {
        return open_model(OnDisk(file).first, {})->identity;
    };
    const ModelIdentity before = identity(bytes);
    // Data begins where the writer puts it: the last tensors are the last layer's, norm and head.
    std::string changed = bytes;
    changed[bytes.size() - 100] ^= 1;
    CHECK(differences(before, identity(changed)) == std::vector<std::string>{"head", "model"});

    const GgufModel scaled(test_data("zoo/llama3-tied-ropescaled"));
    const std::string factors = rope_factors(scaled.config.ropes[0], 16);
    std::string file = with_factors(scaled);
    const ModelIdentity scaled_before = identity(file);
    const size_t at = file.find(factors);
    REQUIRE(at != std::string::npos);
    file[at + 6 * 4] ^= 1;
    CHECK(differences(scaled_before, identity(file)) ==
          std::vector<std::string>{"config", "model"});
}

} // namespace stasis
