// Embeddings through the public header: inputs, options, sizes, cancelling, what is refused, and
// calls on several threads.
#include <thread>

#include "tests/abi/fixture.h"

using namespace abi_test;

namespace {

stasis_model *embedding_model() {
    return shared_model("zoo/qwen3-embedding");
}

stasis_embed_input input_of(const Tokens &tokens) {
    auto input = sized<stasis_embed_input>();
    input.tokens = tokens.data();
    input.token_count = tokens.size();
    return input;
}

stasis_embed_input input_of(const std::string &text) {
    auto input = sized<stasis_embed_input>();
    input.text = text.data();
    input.length = text.size();
    return input;
}

std::vector<float> embed(stasis_model *model, const std::vector<stasis_embed_input> &inputs,
                         const stasis_embed_options *options = nullptr) {
    size_t count = 0;
    stasis_error error;
    CHECK(stasis_model_embed(model, inputs.data(), sizeof(stasis_embed_input), inputs.size(),
                             options, nullptr, 0, &count, &error) == STASIS_BUFFER_TOO_SMALL);
    std::vector<float> vectors(count);
    const stasis_status status =
        stasis_model_embed(model, inputs.data(), sizeof(stasis_embed_input), inputs.size(), options,
                           vectors.data(), count, &count, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return vectors;
}

stasis_status refused(const std::vector<stasis_embed_input> &inputs,
                      const stasis_embed_options *options, const char *part) {
    float vectors[1024];
    size_t count = 0;
    stasis_error error;
    const stasis_status status =
        stasis_model_embed(embedding_model(), inputs.data(), sizeof(stasis_embed_input),
                           inputs.size(), options, vectors, std::size(vectors), &count, &error);
    CHECK_MESSAGE(contains(error, part), error.message);
    return status;
}

} // namespace

TEST_CASE("stasis_model_get_embed_info: what the model's files say") {
    auto info = sized<stasis_embed_info>();
    REQUIRE(stasis_model_get_embed_info(embedding_model(), &info, nullptr) == STASIS_OK);
    CHECK(info.pooling == STASIS_POOLING_LAST);
    CHECK(info.dimension == 64);
    CHECK(info.normalised == 1);
    CHECK(info.tokens_max == 2048);
    CHECK(info.contract == 1);
    CHECK(info.prompt_count == 0);
    CHECK(std::string(info.default_prompt).empty());
    CHECK(std::string(info.refusal).empty());
    REQUIRE(stasis_model_get_embed_info(llama(), &info, nullptr) == STASIS_OK);
    CHECK(info.pooling == 0);

    const Folder folder;
    const std::string path = folder.file("m");
    std::filesystem::copy(test_data("zoo/qwen3-embedding"), path,
                          std::filesystem::copy_options::recursive);
    write_file(path + "/config_sentence_transformers.json",
               R"({"prompts": {"query": "Find: ", "document": ""},
                   "default_prompt_name": "document"})");
    const Model model = open_path(path);
    REQUIRE(stasis_model_get_embed_info(model.get(), &info, nullptr) == STASIS_OK);
    REQUIRE(info.prompt_count == 2);
    CHECK(std::string(info.prompt_names[0]) == "document");
    CHECK(std::string(info.prompt_names[1]) == "query");
    CHECK(std::string(info.prompts[1]) == "Find: ");
    CHECK(std::string(info.default_prompt) == "document");
}

TEST_CASE("stasis_model_embed: a vector is the same in any company, on any thread") {
    const Tokens first = some_tokens(70), second = some_tokens(5, 2), third = some_tokens(129, 3);
    const std::vector<float> all =
        embed(embedding_model(), {input_of(first), input_of(second), input_of(third)});
    REQUIRE(all.size() == 3 * 64);
    std::vector<std::vector<float>> alone(3);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 3; ++i) {
        threads.emplace_back([&, i] {
            const Tokens &tokens = i == 0 ? first : i == 1 ? second : third;
            const stasis_embed_input input = input_of(tokens);
            alone[i].resize(64);
            size_t count = 0;
            stasis_model_embed(embedding_model(), &input, sizeof input, 1, nullptr, alone[i].data(),
                               64, &count, nullptr);
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (size_t i = 0; i < 3; ++i) {
        CHECK(std::memcmp(alone[i].data(), all.data() + 64 * i, 64 * sizeof(float)) == 0);
    }
    CHECK(stats_of(embedding_model()).kv_used_bytes == 0);

    const std::string text = "what is it?";
    stasis_embed_options options;
    stasis_embed_options_init(&options, sizeof options);
    options.pooling = STASIS_POOLING_MEAN;
    stasis_model *chat = shared_model("recall-llama");
    const std::vector<float> mean = embed(chat, {input_of(text)}, &options);
    options.chunk = 2;
    CHECK(same_bits(embed(chat, {input_of(text)}, &options), mean));
    options.pooling = STASIS_POOLING_LAST;
    CHECK(!same_bits(embed(chat, {input_of(text)}, &options), mean));
}

TEST_CASE("stasis_model_embed: what is refused, and cancelling") {
    const Tokens tokens = some_tokens(100);
    CHECK(refused({input_of(tokens), input_of(Tokens())}, nullptr, "inputs[1]") ==
          STASIS_INVALID_ARGUMENT);
    CHECK(refused({input_of(Tokens(2049, 1))}, nullptr, "2048") == STASIS_INVALID_ARGUMENT);
    CHECK(refused({input_of(std::string("a"))}, nullptr, "no tokenizer") == STASIS_UNSUPPORTED);
    stasis_embed_input both = input_of(tokens);
    both.text = "a";
    CHECK(refused({both}, nullptr, "a text and tokens") == STASIS_INVALID_ARGUMENT);
    stasis_embed_input reserved = input_of(tokens);
    reserved.reserved = 1;
    CHECK(refused({reserved}, nullptr, "inputs") == STASIS_UNSUPPORTED);
    auto options = sized<stasis_embed_options>();
    options.pooling = 3;
    CHECK(refused({input_of(tokens)}, &options, "options.pooling") == STASIS_INVALID_ARGUMENT);
    options.pooling = 0;
    options.prompt = "query";
    CHECK(refused({input_of(tokens)}, &options, "query") == STASIS_INVALID_ARGUMENT);
    options.prompt = nullptr;
    const Cancel cancel = make_cancel();
    stasis_cancel_request(cancel.get());
    options.cancel = cancel.get();
    CHECK(refused({input_of(tokens)}, &options, "cancelled") == STASIS_CANCELLED);
    options.cancel = nullptr;
    options.progress = [](void *, uint64_t done, uint64_t total) -> int32_t {
        return total == 100 && done == 100 ? 1 : 0;
    };
    CHECK(refused({input_of(tokens)}, &options, "stop at 100 of 100") == STASIS_STOPPED);
    size_t count = 0;
    stasis_error error;
    CHECK(stasis_model_embed(nullptr, nullptr, 0, 0, nullptr, nullptr, 0, &count, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(stasis_model_embed(llama(), nullptr, 0, 0, nullptr, nullptr, 0, &count, &error) ==
          STASIS_UNSUPPORTED);
    CHECK(stasis_model_embed(embedding_model(), nullptr, 0, 0, nullptr, nullptr, 0, &count,
                             &error) == STASIS_OK);
    CHECK(count == 0);
}
