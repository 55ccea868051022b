// Embeddings: golden values, and the same bits whatever is beside a text and computes it.
#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/kernels/bf16.h"
#include "runtime/quantize/quantize.h"
#include "runtime/session/session.h"
#include "runtime/snapshot/check.h"
#include "runtime/snapshot/export.h"
#include "tests/runtime/embedded.h"
#include "tests/runtime/failure.h"
#include "tests/runtime/golden_tensors.h"

using namespace stasis;
using namespace stasis::test;

namespace {

constexpr char kModel[] = "zoo/qwen3-embedding";
constexpr char kBothWays[] = "zoo/embedding-gemma"; // bidirectional, with dense layers

struct GoldenVectors {
    TokenLists inputs;
    std::vector<float> expected; // [input][hidden]
    double rms = 0, max = 0;     // the tolerance
};

GoldenVectors golden_vectors(const char *name) {
    const GoldenTensors tensors(directory(name));
    GoldenVectors golden;
    std::vector<uint32_t> ids, lengths;
    tensors.read("ids", ids);
    tensors.read("lengths", lengths);
    tensors.read("embedding_bf16p", golden.expected);
    size_t at = 0;
    for (const uint32_t length : lengths) {
        golden.inputs.emplace_back(ids.begin() + static_cast<ptrdiff_t>(at),
                                   ids.begin() + static_cast<ptrdiff_t>(at + length));
        at += length;
    }
    const auto facts = read_json(directory(name) + "/golden.json");
    golden.rms = facts["tolerance_rms"];
    golden.max = facts["tolerance_max"];
    return golden;
}

// How far vectors are from the golden ones, as shares of the tolerance.
std::pair<double, double> deviation(const Vectors &vectors, const GoldenVectors &golden) {
    double squares = 0, largest = 0;
    size_t at = 0;
    for (const std::vector<float> &vector : vectors) {
        for (const float number : vector) {
            const double d = double{number} - double{golden.expected[at++]};
            squares += d * d;
            largest = std::max(largest, std::fabs(d));
        }
    }
    REQUIRE(at == golden.expected.size());
    return {std::sqrt(squares / static_cast<double>(at)) / golden.rms, largest / golden.max};
}

// Texts of lengths around those of pages and passes.
TokenLists some_texts(const Model &model) {
    TokenLists texts;
    for (const size_t length : {1, 5, 63, 64, 65, 129, 600, 2, 40}) {
        texts.push_back(tokens_for(model, length, length));
    }
    return texts;
}

// Each text alone, by the reference, on one thread.
Vectors alone(const std::string &name, Pooling pooling) {
    const auto model = open_forced(name, "reference", 1);
    Vectors vectors;
    for (const std::vector<uint32_t> &text : some_texts(*model)) {
        vectors.push_back(embedded(*model, TokenLists{text}, pooled(pooling)).front());
    }
    return vectors;
}

// Checks that a mistake in a port would be noticed.
void check_noticed(const char *what, const Vectors &vectors, const GoldenVectors &golden) {
    const auto [rms, max] = deviation(vectors, golden);
    std::printf("mistake %-28s rms %.1f and max %.1f of the tolerance\n", what, rms, max);
    CHECK_MESSAGE((rms > 1 || max > 1), what);
}

} // namespace

TEST_CASE("embed: vectors agree with the golden values") {
    for (const char *name : {kModel, kBothWays}) {
        const GoldenVectors golden = golden_vectors(name);
        const auto [rms, max] = deviation(embedded(*open(name), golden.inputs), golden);
        std::printf("golden %-32s rms %.2f and max %.2f of the tolerance\n", name, rms, max);
        CHECK(rms <= 1);
        CHECK(max <= 1);
    }
}

TEST_CASE("embed: the golden tolerance notices what a port of EmbeddingGemma gets wrong") {
    const GoldenVectors golden = golden_vectors(kBothWays);
    const auto model = open_model(directory(kBothWays), {});
    const auto check = [&](const char *what) {
        check_noticed(what, embedded(*model, golden.inputs), golden);
    };
    check_noticed("the last token", embedded(*model, golden.inputs, pooled(Pooling::last)), golden);
    model->config.bidirectional = false;
    check("no position after its own");
    model->config.bidirectional = true;
    const std::vector<LayerConfig> own = model->config.layer;
    const uint32_t window = own[0].window;
    REQUIRE(window == 9);
    for (const uint32_t wrong : {window + 1, window - 1, 2 * window - 2, 0U}) {
        for (LayerConfig &layer : model->config.layer) {
            layer.window = layer.window == 0 ? 0 : wrong;
        }
        check(("a window of " + std::to_string(wrong)).c_str());
        model->config.layer = own;
    }
    model->config.layer[2].window = window;
    check("no layer that sees all");
    model->config.layer = own;
    EmbeddingRules &rules = model->embedding;
    std::vector<float> &bias = rules.dense[1].bias;
    std::vector<float> none(bias.size(), 0.0F);
    bias.swap(none);
    check("no bias of a dense layer");
    bias.swap(none);
    rules.dense[0].weights[1] += 0.5F;
    check("one weight of a dense layer");
    rules.dense[0].weights[1] -= 0.5F;
    rules.normalised = false;
    check("not normalised");
}

TEST_CASE("embed: the golden tolerance notices what a port of embeddings gets wrong") {
    const GoldenVectors golden = golden_vectors(kModel);
    check_noticed("the mean of all tokens",
                  embedded(*open(kModel), golden.inputs, pooled(Pooling::mean)), golden);
    TokenLists shorter = golden.inputs;
    for (std::vector<uint32_t> &tokens : shorter) {
        tokens.pop_back();
    }
    check_noticed("the token before the last", embedded(*open(kModel), shorter), golden);
    const auto model = open_model(directory(kModel), {});
    model->embedding.normalised = false;
    check_noticed("not normalised", embedded(*model, golden.inputs), golden);
    model->embedding.normalised = true;
    const std::vector<float> ones(model->config.hidden, 1.0F);
    model->weights.final_norm = ones.data();
    check_noticed("no gain of the final norm", embedded(*model, golden.inputs), golden);
}

TEST_CASE("embed: a text has the same bits whatever is beside it, on every table and cut") {
    for (const char *name : {kModel, "zoo/gemma3-text", "zoo/qwen3_5-moe", kBothWays}) {
        for (const Pooling pooling : {Pooling::last, Pooling::mean}) {
            INFO(name, ", ", name_of(pooling));
            const Vectors expected = alone(name, pooling);
            TokenLists backwards = some_texts(*open(name));
            std::reverse(backwards.begin(), backwards.end());
            for (const char *const *table = kernels::table_names(); *table != nullptr; ++table) {
                if (kernels::find_table(*table) == nullptr) {
                    std::printf("SKIPPED: embed: this machine cannot run table '%s'\n", *table);
                    continue;
                }
                INFO("table: ", *table);
                const auto model = open_forced(name, *table, 3);
                EmbedOptions options = pooled(pooling);
                CHECK(same_vectors(embedded(*model, some_texts(*model), options), expected));
                options.chunk = 7 + std::string(*table).size(); // a cut of its own
                Vectors reversed = embedded(*model, backwards, options);
                std::reverse(reversed.begin(), reversed.end());
                CHECK(same_vectors(reversed, expected));
            }
        }
    }
}

TEST_CASE("embed: the last token's vector is that of a session's hidden state") {
    const kernels::FloatEnvironment environment;
    const auto model = open(kModel);
    const std::vector<uint32_t> tokens = tokens_for(*model, 100);
    Timeline timeline(*model, {});
    std::vector<TokenEntry> entries;
    for (const uint32_t token : tokens) {
        entries.push_back({token});
    }
    append(timeline, entries, {});
    double squares = 0;
    for (const uint16_t number : timeline.hidden.numbers) {
        squares += std::pow(double{kernels::bf16_to_f32(number)}, 2);
    }
    const std::vector<float> vector = embedded(*model, TokenLists{tokens}).front();
    for (size_t i = 0; i < vector.size(); ++i) {
        const double expected =
            double{kernels::bf16_to_f32(timeline.hidden.numbers[i])} / std::sqrt(squares);
        CHECK(std::fabs(double{vector[i]} - expected) < 1e-7);
    }
}

TEST_CASE("embed: many texts hold pages of some at a time, and a small budget is enough for one") {
    const auto model = open_model(directory(kModel), {});
    TokenLists texts;
    for (size_t i = 0; i < 300; ++i) {
        texts.push_back(tokens_for(*model, 1 + i % 20, i));
    }
    struct Watched {
        const Model &model;
        uint64_t most = 0;
    } watched{*model};
    EmbedOptions options;
    options.watch.user = &watched;
    options.watch.progress = [](void *user, uint64_t, uint64_t) {
        auto &self = *static_cast<Watched *>(user);
        self.most = std::max(self.most, self.model.pool->used_bytes());
        return true;
    };
    const Vectors expected = embedded(*model, texts, options);
    const uint64_t page_bytes = model->page_shapes[0].bytes();
    CHECK(watched.most > 0);
    CHECK(watched.most <= kEmbedPositions / kPage * page_bytes);
    CHECK(model->pool->used_bytes() == 0);

    ModelOptions small;
    small.kv_budget_bytes = 2 * page_bytes;
    const auto tight = open_model(directory(kModel), small);
    CHECK(same_vectors(embedded(*tight, texts), expected));
    const TokenLists long_text{tokens_for(*tight, 129)};
    CHECK(status_of([&] { embedded(*tight, long_text); }) == Status::pool_exhausted);
}

TEST_CASE("embed: what cannot be embedded is refused by the input's index") {
    const auto model = open(kModel);
    const auto refused = [&](Status status, const TokenLists &inputs, const char *part) {
        expect_error(status, {part}, [&] { embedded(*model, inputs); });
    };
    CHECK(status_of([&] { embedded(*open(kBothWays), {std::vector<uint32_t>(1025, 3)}); }) ==
          Status::invalid_argument);
    refused(Status::invalid_argument, {{1}, {}}, "inputs[1]: there are no tokens");
    refused(Status::invalid_argument, {{1}, {2, 192}}, "inputs[1]: token 1 is 192");
    refused(Status::invalid_argument, {{1}, std::vector<uint32_t>(2049, 3)},
            "inputs[1]: 2049 tokens exceed the model's 2048");
    expect_error(Status::unsupported, {"inputs[0]", "no tokenizer"},
                 [&] { embedded_text(*model, "a"); });
    expect_error(Status::unsupported, {"do not say"},
                 [&] { embedded(*open("zoo/qwen3-qknorm"), TokenLists{{1}}); });
    EmbedOptions options;
    options.prompt = "query";
    expect_error(Status::invalid_argument, {"prompt \"query\"", "none"},
                 [&] { embedded(*model, TokenLists{{1}}, options); });
    std::atomic<bool> cancel{true};
    options = {};
    options.watch.cancel = &cancel;
    CHECK(status_of([&] { embedded(*model, TokenLists{{1}}, options); }) == Status::cancelled);
    CHECK(embedded(*model, TokenLists{}).empty());
}

TEST_CASE(
    "embed: of a bidirectional model each token changes the vector, in a text of any length") {
    const auto model = open(kBothWays);
    for (const size_t length : {2, 4, 5, 64, 65, 513, 1024}) { // 513: more than a usual pass
        std::vector<uint32_t> text = tokens_for(*model, length);
        const Vectors before = embedded(*model, TokenLists{text});
        for (const size_t at : {size_t{0}, length / 2, length - 1}) {
            std::vector<uint32_t> other = text;
            other[at] = other[at] == 7 ? 8 : 7;
            CHECK(!same_vectors(embedded(*model, TokenLists{other}), before));
        }
    }
    // The first token's own hidden state as well, through a layer without a window.
    const auto first = [&](uint32_t last) {
        std::vector<uint32_t> text(300, 9);
        text.back() = last;
        Timeline timeline(*model, {});
        std::vector<TokenEntry> entries;
        for (const uint32_t token : text) {
            entries.push_back({token});
        }
        std::vector<uint16_t> row;
        AppendOptions options;
        options.hidden = [](void *user, const Timeline &, uint64_t, const uint16_t *hidden,
                            size_t) noexcept {
            static_cast<std::vector<uint16_t> *>(user)->assign(hidden, hidden + 64);
        };
        options.hidden_user = &row;
        append(timeline, entries, options);
        return row;
    };
    const kernels::FloatEnvironment environment;
    CHECK(first(5) != first(6));
}

TEST_CASE("embed: a bidirectional model has no sessions, and drafts for none") {
    const auto model = open(kBothWays);
    const auto other = open("zoo/gemma3-text");
    REQUIRE(other->config.vocabulary == model->config.vocabulary);
    Session drafted(other, TimelineOptions{});
    DraftOptions options;
    options.model = model;
    expect_error(Status::unsupported, {"both ways"}, [&] { drafted.set_draft(options); });
    const State state = export_state(drafted);
    expect_error(Status::model_mismatch, {"architecture"},
                 [&] { check_identity(state.model, *model); });
    expect_error(Status::unsupported, {"both ways", "no sessions"},
                 [&] { Session(model, TimelineOptions{}); });
    CHECK(model->identity.config.end() !=
          std::find(model->identity.config.begin(), model->identity.config.end(),
                    std::pair<std::string, std::string>("bidirectional", "yes")));
}

TEST_CASE("embed: a GGUF file of a bidirectional model gives the directory's vectors") {
    const EmbeddingModel files(kBothWays, false);
    const auto write = [&](const char *name) {
        QuantizeOptions options;
        options.type = "BF16";
        quantize_model(files.path.path(), files.path.file(name), options);
        return open_model(files.path.file(name), {});
    };
    expect_error(Status::unsupported, {"a dense layer with biases"}, [&] { write("bias.gguf"); });
    files.replace("3_Dense/config.json", R"("bias": true)", R"("bias": false)");
    const auto model = write("model.gguf");
    CHECK(model->config.bidirectional);
    CHECK(model->config.layer[0].window == 9);
    CHECK(model->config.layer[2].window == 0);
    REQUIRE(model->embedding.dense.size() == 2);
    const TokenLists texts = some_texts(*model);
    CHECK(same_vectors(embedded(*model, texts), embedded(*files.open(), texts)));
}
