// What the library and models say of themselves, through the public header.
#include <cmath>
#include <regex>

#include "tests/abi/fixture.h"
#include "tests/runtime/quantized_model.h"

using namespace abi_test;

namespace {

stasis_token_info token_of(const stasis_model *model, stasis_token token) {
    auto info = sized<stasis_token_info>();
    stasis_error error;
    const stasis_status status = stasis_model_get_token(model, token, &info, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return info;
}

std::string piece_of(const stasis_token_info &info) {
    return {info.piece, info.length};
}

// Returns how many tokens are of a kind.
size_t count_of(const std::vector<stasis_token_info> &tokens, uint32_t kind) {
    return static_cast<size_t>(
        std::count_if(tokens.begin(), tokens.end(),
                      [=](const stasis_token_info &info) { return info.kind == kind; }));
}

// Returns all tokens, after checking each against the model's other answers.
std::vector<stasis_token_info> vocabulary_of(const stasis_model *model) {
    auto facts = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &facts, nullptr) == STASIS_OK);
    std::vector<stasis_token_info> tokens;
    for (stasis_token token = 0; token < facts.vocabulary; ++token) {
        const stasis_token_info info = tokens.emplace_back(token_of(model, token));
        CAPTURE(token);
        char text[512];
        size_t length = 0;
        REQUIRE(stasis_model_detokenize(model, &token, 1, STASIS_DETOKENIZE_PIECE, text,
                                        sizeof text, &length, nullptr) == STASIS_OK);
        CHECK(piece_of(info) == std::string(text, length));
        const bool ends = std::find(facts.end_tokens, facts.end_tokens + facts.end_token_count,
                                    token) != facts.end_tokens + facts.end_token_count;
        CHECK(((info.flags & STASIS_TOKEN_ENDS) != 0) == ends);
        CHECK(std::isfinite(info.score));
        CHECK(((info.flags & STASIS_TOKEN_SCORED) != 0 || info.score == 0));
        // Special tokens, and they alone, give a text only if it is asked for.
        size_t plain = 0;
        REQUIRE(stasis_model_detokenize(model, &token, 1, STASIS_DETOKENIZE_MIDDLE, text,
                                        sizeof text, &plain, nullptr) == STASIS_OK);
        const bool special = info.kind == STASIS_TOKEN_SPECIAL || info.kind == STASIS_TOKEN_UNKNOWN;
        CHECK((plain == 0) == (special || info.length == 0));
        CHECK((info.kind == STASIS_TOKEN_BYTE) ==
              std::regex_match(piece_of(info), std::regex("<0x[0-9A-F]{2}>")));
        if (info.length == 0) {
            CHECK(info.kind == STASIS_TOKEN_UNUSED);
        }
    }
    return tokens;
}

} // namespace

TEST_CASE("stasis_build: version, compiler, kind of build, parts") {
    const std::string build = stasis_build();
    const uint32_t version = stasis_version();
    const std::string number = std::to_string(version >> 16) + "." +
                               std::to_string(version >> 8 & 255) + "." +
                               std::to_string(version & 255);
    CHECK(build.rfind(number + " (", 0) == 0);
    const std::regex whole(R"(\d+\.\d+\.\d+ \((gcc|clang) \d+\.\d+\.\d+, (optimised|debug))"
                           R"((, (address|thread) sanitizer)?(, avx512)?(, cuda)?\))");
    CHECK_MESSAGE(std::regex_match(build, whole), build);
#ifdef NDEBUG
    CHECK(build.find("optimised") != std::string::npos);
#else
    CHECK(build.find("debug") != std::string::npos);
#endif
    CHECK(stasis_build() == stasis_build()); // the same string
}

TEST_CASE("stasis_model_get_token: a SentencePiece vocabulary") {
    const stasis_model *model = shared_model("recall-gemma3");
    const std::vector<stasis_token_info> tokens = vocabulary_of(model);
    CHECK(count_of(tokens, STASIS_TOKEN_BYTE) == 256);
    CHECK(count_of(tokens, STASIS_TOKEN_UNKNOWN) == 1);
    CHECK(count_of(tokens, STASIS_TOKEN_SPECIAL) >= 4);
    CHECK(count_of(tokens, STASIS_TOKEN_NORMAL) > 50);
    // Merges that were learnt later have lower scores.
    size_t scored = 0, negative = 0;
    for (const stasis_token_info &info : tokens) {
        scored += (info.flags & STASIS_TOKEN_SCORED) != 0;
        negative += info.score < 0;
    }
    CHECK(scored > 256);
    CHECK(negative > 50);
}

TEST_CASE("stasis_model_get_token: GGUF files keep kinds and scores of the directory's") {
    const stasis_model *from = shared_model("recall-gemma3");
    const Folder folder;
    const std::string path = folder.file("model.gguf");
    REQUIRE(stasis_model_quantize(test_data("recall-gemma3").c_str(), path.c_str(), nullptr,
                                  nullptr, nullptr) == STASIS_OK);
    const Model model = open_path(path);
    const std::vector<stasis_token_info> expected = vocabulary_of(from),
                                         tokens = vocabulary_of(model.get());
    REQUIRE(tokens.size() == expected.size());
    for (size_t token = 0; token < tokens.size(); ++token) {
        CAPTURE(token);
        CHECK((tokens[token].kind == expected[token].kind));
        if ((expected[token].flags & STASIS_TOKEN_SCORED) != 0) {
            CHECK((tokens[token].flags & STASIS_TOKEN_SCORED) != 0);
            CHECK(tokens[token].score == expected[token].score);
        }
    }
}

TEST_CASE("stasis_model_get_token: what is refused, and structs of other sizes") {
    const stasis_model *model = shared_model("recall-gemma3");
    auto facts = sized<stasis_model_info>();
    REQUIRE(stasis_model_get_info(model, &facts, nullptr) == STASIS_OK);
    auto info = sized<stasis_token_info>();
    stasis_error error;
    CHECK(stasis_model_get_token(model, facts.vocabulary, &info, &error) ==
          STASIS_INVALID_ARGUMENT);
    CHECK(contains(error, std::to_string(facts.vocabulary)));
    CHECK(stasis_model_get_token(model, UINT32_MAX, &info, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(stasis_model_get_token(nullptr, 0, &info, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(stasis_model_get_token(model, 0, nullptr, &error) == STASIS_INVALID_ARGUMENT);
    CHECK(stasis_model_get_token(gemma(), 0, &info, &error) == STASIS_UNSUPPORTED);
    CHECK(contains(error, "tokenizer"));
    info.struct_size = 3;
    CHECK(stasis_model_get_token(model, 0, &info, &error) == STASIS_INVALID_ARGUMENT);
    // A caller of a smaller struct gets the fields it knows.
    info = sized<stasis_token_info>();
    info.struct_size = 16;
    info.piece = "untouched";
    CHECK(stasis_model_get_token(model, 0, &info, &error) == STASIS_OK);
    CHECK(std::string(info.piece) == "untouched");
    CHECK(info.kind != 0);
}
