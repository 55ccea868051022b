// Models of stasis.hpp: descriptions, text, vectors, GGUF files.
#include <fcntl.h>

#include <fstream>

#include "tests/cpp/fixture.h"

using namespace cpp_test;

TEST_CASE("Model: opened with options, described, and told apart") {
    std::uint64_t done = 0, total = 0;
    const stasis::Model model(test_data("recall-gemma3"), {.threads = 3,
                                                           .device = "cpu",
                                                           .kernels = "reference",
                                                           .profile = "contract",
                                                           .copy_weights = true,
                                                           .verify_weights = true,
                                                           .kv_budget_bytes = 1 << 24,
                                                           .state_budget_bytes = 1 << 20,
                                                           .chat_template = "gemma",
                                                           .date = "2026-01-02",
                                                           .progress = [&](auto now, auto all) {
                                                               done = now;
                                                               total = all;
                                                           }});
    CHECK(done == total);
    CHECK(total > 0);
    const stasis::ModelInfo info = model.info();
    CHECK(info.threads == 3);
    CHECK(std::string(info.kernels) == "reference");
    CHECK(std::string(info.chat_template) == "gemma");
    CHECK(model.stats().kv_budget_bytes == 1 << 24);
    CHECK(model.stats().state_budget_bytes == 1 << 20);
    CHECK(stasis::Digest(info.model) == stasis::Digest(recall().info().model));
    CHECK(stasis::Digest(info.model) != stasis::Digest(without_tokenizer().info().model));
    CHECK(status_of([] { stasis::Model(test_data("recall-gemma3"), {.kernels = "abacus"}); },
                    "abacus") == Status::Unsupported);
    CHECK(status_of([] { stasis::Model(test_data("recall-gemma3"), {.device = "tpu"}); }) !=
          Status::Ok);
    CHECK(status_of([] { stasis::Model(test_data("recall-gemma3"), {.chat_template = "x"}); }) !=
          Status::Ok);
    stasis::Cancel cancel;
    cancel.request();
    CHECK(status_of([&] { stasis::Model(test_data("recall-gemma3"), {.cancel = &cancel}); }) ==
          Status::Cancelled);
    cancel.reset();
    stasis::Model again(test_data("recall-gemma3"), {.cancel = &cancel});
    CHECK(cancel.progress().done == cancel.progress().total);
    CHECK(cancel.progress().total == total);
}

TEST_CASE("Threads: a pool that models share, with the same bits") {
    stasis::Threads threads({.count = 2, .name = "pool"});
    const stasis::Model first(test_data("recall-gemma3"), {.thread_pool = &threads});
    const stasis::Model second(test_data("recall-gemma3"), {.thread_pool = &threads});
    stasis::Threads moved = std::move(threads);
    CHECK(status_of([&] { stasis::Model(test_data("recall-gemma3"), {.thread_pool = &threads}); },
                    "moved") == Status::InvalidArgument);
    CHECK(status_of([&] {
              stasis::Model(test_data("recall-gemma3"), {.threads = 2, .thread_pool = &moved});
          }) == Status::InvalidArgument);
    moved = stasis::Threads(); // models keep theirs
    CHECK(first.info().threads == 2);
    stasis::Session one(first), other(second);
    CHECK(one.say(kFirst).text() == "k is 5.");
    CHECK(other.say(kFirst).text() == "k is 5.");
    CHECK(one.digest() == other.digest());
    CHECK(one.digest() == talk().digest());
    CHECK(status_of([] { stasis::Threads({.count = 5000}); }) == Status::InvalidArgument);
    CHECK(status_of([] { stasis::Threads({.cpus = {1U << 20}}); }) == Status::InvalidArgument);
    CHECK(status_of([] { stasis::Threads({.name = std::string(40, 'x')}); }) ==
          Status::InvalidArgument);
}

TEST_CASE("Model: from files that functions give, and from a descriptor") {
    const std::filesystem::path folder = test_data("recall-gemma3");
    const stasis::ModelFiles files{
        [&](const std::string &name) -> std::optional<std::uint64_t> {
            const std::filesystem::path path = folder / name;
            return std::filesystem::exists(path) ? std::optional(std::filesystem::file_size(path))
                                                 : std::nullopt;
        },
        [&](const std::string &name, std::uint64_t offset, std::span<std::byte> space) {
            std::ifstream file(folder / name, std::ios::binary);
            file.seekg(static_cast<std::streamoff>(offset));
            file.read(reinterpret_cast<char *>(space.data()),
                      static_cast<std::streamsize>(space.size()));
            return static_cast<std::size_t>(file.gcount());
        }};
    const stasis::Digest expected = stasis::Model(folder).info().model;
    CHECK(stasis::Digest(stasis::Model(files).info().model) == expected);
    stasis::ModelFiles failing = files;
    failing.read = [](const std::string &, std::uint64_t, std::span<std::byte>) -> std::size_t {
        throw Thrown{9};
    };
    CHECK(thrown_by([&] { stasis::Model{failing}; }) == 9);
    const Folder place;
    const std::filesystem::path path = place.file("a.gguf");
    stasis::quantize(folder, path);
    const stasis::Digest of_file = stasis::Model(path).info().model;
    const int descriptor = ::open(path.c_str(), O_RDONLY);
    const stasis::Model model = stasis::Model::of_descriptor(descriptor);
    ::close(descriptor);
    CHECK(stasis::Digest(model.info().model) == of_file);
}

TEST_CASE("Model: text to tokens and back") {
    const std::vector<stasis::Token> tokens = recall().tokenize(kFirst);
    CHECK(recall().detokenize(tokens) == kFirst);
    const std::vector<stasis::Token> with_bos = recall().tokenize(kFirst, {.bos = true});
    REQUIRE(with_bos.size() == tokens.size() + 1);
    CHECK(with_bos.front() == recall().info().bos);
    CHECK(recall().tokenize("").empty());
    CHECK(recall().tokenize("<end_of_turn>", {.special = true}).size() == 1);
    CHECK(recall().tokenize("<end_of_turn>").size() > 1);
    CHECK(recall().detokenize(with_bos) == kFirst);
    CHECK(recall().detokenize(with_bos, {.special = true}) == std::string("<bos>") + kFirst);
    const std::string longer(5000, 'k'); // more bytes than was guessed
    CHECK(recall().detokenize(recall().tokenize(longer)) == longer);
    const std::vector<stasis::Token> k = recall().tokenize(" k");
    const stasis::TokenInfo info = recall().token(k.front());
    CHECK(info.kind == STASIS_TOKEN_NORMAL);
    CHECK(std::string(info.piece, info.length) ==
          recall().detokenize(std::span(k).first(1), {.piece = true}));
    CHECK(recall().detokenize(k, {.middle = true}) == " k");
    CHECK(status_of([] { recall().tokenize("\xff"); }, "byte") == Status::InvalidArgument);
    CHECK(status_of([] { recall().token(1U << 30); }) == Status::InvalidArgument);
    CHECK(status_of([] { without_tokenizer().tokenize("k"); }) == Status::Unsupported);
}

TEST_CASE("Model::session_memory, estimate: what sessions take") {
    const stasis::SessionOptions options{.domain = STASIS_DOMAIN_PRIVATE};
    stasis::Session session(recall(), options);
    session.append(std::vector<stasis::Token>(300, 5));
    const stasis::SessionMemory memory = recall().session_memory(300, options);
    CHECK(memory.kv_bytes == session.info().kv_bytes);
    const stasis::Estimate told = stasis::estimate(test_data("recall-gemma3"), {}, options, 300);
    CHECK(std::memcmp(&told.session, &memory, sizeof memory) == 0);
    CHECK(told.model.weight_bytes == recall().info().weight_bytes);
    CHECK(status_of([] { stasis::estimate("/no/such/model"); }) == Status::NotFound);
    CHECK(status_of([] { recall().session_memory(1 << 20); }) == Status::InvalidArgument);
}

TEST_CASE("Model::metadata: what the files say") {
    const stasis::Metadata layers = recall().metadata("config.num_hidden_layers");
    CHECK(layers.kind == stasis::Metadata::Kind::Json);
    CHECK(layers.value == "12");
    const std::vector<stasis::Metadata> all = recall().all_metadata();
    CHECK(all.size() > 20);
    for (const stasis::Metadata &each : all) {
        CHECK(recall().metadata(each.key).value == each.value);
    }
    CHECK(status_of([] { recall().metadata("none.such"); }, "none.such") == Status::NotFound);
}

TEST_CASE("Model::render: a conversation by the template") {
    const std::vector<stasis::Message> messages{{"user", "What is k?"}, {"assistant", "5."}};
    const std::string text = recall().render(messages, stasis::ReplyPrompt::No);
    CHECK(text.find("What is k?") != std::string::npos);
    CHECK(recall().render(std::span(messages).first(1), stasis::ReplyPrompt::Yes).size() >
          recall().render(std::span(messages).first(1), stasis::ReplyPrompt::No).size());
    const std::vector<stasis::Message> long_one{{"user", std::string(3000, 'x')}};
    CHECK(recall().render(long_one, stasis::ReplyPrompt::No).size() > 3000);
    CHECK(status_of([] { recall().render({}, stasis::ReplyPrompt::No); }) ==
          Status::InvalidArgument);
}

TEST_CASE("Model::embed: vectors of texts and tokens, the same alone and together") {
    const stasis::Model model(test_data("zoo/qwen3-embedding"));
    const stasis::EmbedInfo info = model.embed_info();
    CHECK(info.pooling == STASIS_POOLING_LAST);
    const std::vector<stasis::EmbedInput> inputs{std::vector<stasis::Token>{5, 6, 7},
                                                 std::vector<stasis::Token>{9, 9}};
    const stasis::Vectors vectors = model.embed(inputs);
    CHECK(vectors.dimension == info.dimension);
    REQUIRE(vectors.size() == 2);
    const stasis::Vectors alone = model.embed(std::span(inputs).last(1), {.chunk = 1});
    CHECK(std::ranges::equal(vectors[1], alone[0]));
    CHECK(!std::ranges::equal(vectors[0], vectors[1]));
    float norm = 0;
    for (const float each : vectors[0]) {
        norm += each * each;
    }
    CHECK(norm == doctest::Approx(1));
    const stasis::Vectors mean = model.embed(inputs, {.pooling = stasis::Pooling::Mean});
    CHECK(!std::ranges::equal(mean[0], vectors[0]));
    CHECK(model.embed({}).size() == 0);
    const std::vector<stasis::EmbedInput> texts{"what is k?"};
    CHECK(status_of([&] { model.embed(texts, {.prompt = "no such prompt"}); }, "no such prompt") ==
          Status::InvalidArgument);
    const std::vector<stasis::EmbedInput> nothing{std::vector<stasis::Token>{}};
    CHECK(status_of([&] { model.embed(nothing); }) == Status::InvalidArgument);
    if ((model.info().flags & STASIS_MODEL_TOKENIZER) != 0) {
        CHECK(model.embed(texts).size() == 1);
    } else {
        CHECK(status_of([&] { model.embed(texts); }) == Status::Unsupported);
    }
}

TEST_CASE("quantize: a model directory as a file, which opens") {
    const Folder folder;
    const auto out = folder.file("m.gguf");
    const stasis::QuantizeReport report =
        stasis::quantize(test_data("recall-llama"), out, {.type = "Q8_0", .threads = 2});
    CHECK(report.file_bytes == std::filesystem::file_size(out));
    CHECK(std::string(report.shares[0].type) == "Q8_0");
    const stasis::Model model(out);
    CHECK(model.info().weight_bytes < report.source_bytes);
    CHECK(status_of([&] { stasis::quantize(test_data("recall-llama"), out); }) ==
          Status::InvalidArgument);
    stasis::quantize(test_data("recall-llama"), out, {.type = "F16", .replace = true});
    CHECK(std::filesystem::file_size(out) > report.file_bytes);
    CHECK(
        status_of(
            [&] { stasis::quantize(test_data("recall-llama"), folder.file("n"), {.type = "Q9"}); },
            "Q9") == Status::Unsupported);
}
