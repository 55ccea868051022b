// Completions, embeddings, models and errors.
#include <doctest/doctest.h>

#include <cstring>
#include <tuple>

#include "tests/serve/api_cases.h"

namespace {

using api_cases::events;
using api_cases::refusal;
using api_cases::written;
using serve::api::Finish;
using serve::api::Json;
using serve::api::read_completion;
using serve::api::read_embedding;

} // namespace

TEST_CASE("read_completion: prompts as text and as tokens, one a request") {
    const auto request = read_completion(R"({"prompt":"a","logprobs":2,"echo":false,"best_of":1})");
    CHECK(request.dialect == serve::api::Dialect::completions);
    CHECK(request.conversation.is_null());
    CHECK(request.prompt == "a");
    CHECK(request.tokens_max == 16U);
    CHECK(request.log_probabilities);
    CHECK(request.best == 2);
    CHECK(read_completion(R"({"prompt":["b"],"max_tokens":0})").prompt == "b");
    CHECK(read_completion(R"({"prompt":[1,2]})").tokens == std::vector<stasis_token>{1, 2});
    CHECK(read_completion(R"({"prompt":[[3]]})").tokens == std::vector<stasis_token>{3});
    CHECK(read_completion(R"({"prompt":"","echo":true})").repeat_prompt);
    const std::pair<const char *, const char *> cases[] = {
        {R"({"prompt":["a","b"]})", "prompt unsupported_value"},
        {R"({"prompt":[]})", "prompt invalid_type"},
        {R"({"prompt":[[]]})", "prompt invalid_type"},
        {R"({"prompt":[-1]})", "prompt invalid_value"},
        {R"({"prompt":[1.5]})", "prompt invalid_value"},
        {R"({"prompt":{}})", "prompt invalid_type"},
        {R"({})", "prompt missing_required_parameter"},
        {R"({"prompt":"a","suffix":"b"})", "suffix unsupported_parameter"},
        {R"({"prompt":"a","best_of":2})", "best_of unsupported_value"},
        {R"({"prompt":[1],"echo":true})", "echo unsupported_value"},
        {R"({"prompt":"a","echo":true,"logprobs":0})", "echo unsupported_value"},
        {R"({"prompt":"a","logprobs":true})", "logprobs invalid_type"},
        {R"({"prompt":"a","messages":[]})", "messages unknown_parameter"},
    };
    for (const auto &[body, expected] : cases) {
        const auto &shown = body; // clang does not capture a binding
        CAPTURE(shown);
        CHECK(refusal(read_completion, body).substr(0, strlen(expected)) == expected);
    }
}

TEST_CASE("completion replies: whole and in pieces") {
    auto request = read_completion(R"({"prompt":"Say: ","echo":true})");
    serve::api::Reply reply;
    reply.content = "Good day.";
    CHECK(written(request, reply, Finish::length) ==
          R"({"id":"cmpl-unique","object":"text_completion","created":1700000000,)"
          R"("model":"small","choices":[{"index":0,"text":"Say: Good day.","logprobs":null,)"
          R"("finish_reason":"length"}],"usage":{"prompt_tokens":12,"completion_tokens":5,)"
          R"("total_tokens":17,"prompt_tokens_details":{"cached_tokens":8},)"
          R"("completion_tokens_details":{"reasoning_tokens":2}}})");
    request.stream = true;
    const auto stream = events(written(request, reply, Finish::stop));
    REQUIRE(stream.size() == 5);
    std::string text;
    for (size_t i = 0; i < 4; ++i) {
        text += stream[i]["choices"][0]["text"].get<std::string>();
    }
    CHECK(text == "Say: Good day.");
    CHECK(stream[3]["choices"][0]["finish_reason"] == "stop");
    CHECK_FALSE(stream[3].contains("usage"));
    CHECK(stream[4] == "[DONE]");
}

TEST_CASE("completion replies: likelihoods are four lists, whose offsets count characters") {
    auto request = read_completion(R"({"prompt":"a","logprobs":1})");
    serve::api::Reply reply;
    reply.content = "\xc3\xa9x";
    reply.likelihoods = {{"\xc3\xa9", 5, -0.5F, {{"\xff", 8, -0.25F, {}}, {"\xfe", 9, -1.0F, {}}}},
                         {"x", 7, 0.0F, {}}};
    const std::string expected = "{\"tokens\":[\"\xc3\xa9\",\"x\"],\"token_logprobs\":[-0.5,0.0],"
                                 "\"top_logprobs\":[{\"\xef\xbf\xbd\":-0.25},{}],"
                                 "\"text_offset\":[0,1]}";
    CHECK(Json::parse(written(request, reply, Finish::stop, 0))["choices"][0]["logprobs"].dump() ==
          expected);
    request.stream = true;
    const auto stream = events(written(request, reply, Finish::stop, 0));
    CHECK(stream[0]["choices"][0]["logprobs"].dump() == expected);
}

TEST_CASE("embeddings: what is asked for, and vectors as numbers and as base64") {
    auto request = read_embedding(R"({"model":"m","input":"a"})");
    CHECK(request.texts == std::vector<std::string>{"a"});
    CHECK_FALSE(request.base64);
    const std::vector<std::vector<float>> vectors{{1.0F, -0.5F}, {0.0F, 2.0F}};
    CHECK(serve::api::embeddings_body(request, "small", vectors, 7) ==
          R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[1.0,-0.5]},)"
          R"({"object":"embedding","index":1,"embedding":[0.0,2.0]}],"model":"small",)"
          R"("usage":{"prompt_tokens":7,"total_tokens":7}})");
    request = read_embedding(R"({"input":["a","b"],"encoding_format":"base64","dimensions":2})");
    CHECK(request.texts.size() == 2);
    CHECK(request.dimensions == 2U);
    // 0000803f 000000bf, 00000000 00000040
    CHECK(Json::parse(serve::api::embeddings_body(request, "small", vectors,
                                                  7))["data"][0]["embedding"] == "AACAPwAAAL8=");
    CHECK(Json::parse(serve::api::embeddings_body(request, "small", {{2.0F}},
                                                  7))["data"][0]["embedding"] == "AAAAQA==");
    CHECK(read_embedding(R"({"input":[1,2]})").tokens ==
          std::vector<std::vector<stasis_token>>{{1, 2}});
    CHECK(read_embedding(R"({"input":[[1],[2]]})").tokens.size() == 2);
    const std::pair<const char *, const char *> cases[] = {
        {R"({"input":[]})", "input invalid_type"},
        {R"({"input":""})", "input invalid_type"},
        {R"({"input":["a",1]})", "input[1] invalid_type"},
        {R"({"input":[[1],"a"]})", "input[1] invalid_type"},
        {R"({"input":[[1],[]]})", "input[1] invalid_type"},
        {R"({"input":7})", "input invalid_type"},
        {R"({"input":"a","encoding_format":"hex"})", "encoding_format invalid_value"},
        {R"({"input":"a","dimensions":0})", "dimensions invalid_value"},
        {R"({"input":"a","dim":1})", "dim unknown_parameter"},
    };
    for (const auto &[body, expected] : cases) {
        const auto &shown = body; // clang does not capture a binding
        CAPTURE(shown);
        CHECK(refusal(read_embedding, body).substr(0, strlen(expected)) == expected);
    }
}

TEST_CASE("bodies of models, counts and errors in either form") {
    const serve::api::ModelEntry model{"small", 1700000000, 4096};
    CHECK(serve::api::models_body({model}, false) ==
          R"({"object":"list","data":[{"id":"small","object":"model","created":1700000000,)"
          R"("owned_by":"stasis","max_model_len":4096}]})");
    CHECK(serve::api::models_body({model}, true) ==
          R"({"data":[{"type":"model","id":"small","display_name":"small",)"
          R"("created_at":"2023-11-14T22:13:20Z","lifecycle":"active","max_input_tokens":4096,)"
          R"("max_tokens":4096}],"has_more":false,"first_id":"small","last_id":"small"})");
    CHECK(serve::api::models_body({}, true) ==
          R"({"data":[],"has_more":false,"first_id":null,"last_id":null})");
    CHECK(Json::parse(serve::api::model_body(model, false))["id"] == "small");
    CHECK(serve::api::token_count_body(12) == R"({"input_tokens":12})");
    const serve::api::Refused refused{400, "invalid_value", "'n' is wrong", "n"};
    CHECK(serve::api::error_body(refused, false) ==
          R"({"error":{"message":"'n' is wrong","type":"invalid_request_error","param":"n",)"
          R"("code":"invalid_value"}})");
    CHECK(serve::api::error_body(refused, true) ==
          R"({"type":"error","error":{"type":"invalid_request_error","message":"'n' is wrong"}})");
    const std::tuple<int, const char *, const char *> types[] = {
        {401, "authentication_error", "authentication_error"},
        {403, "permission_error", "permission_error"},
        {404, "invalid_request_error", "not_found_error"},
        {413, "invalid_request_error", "request_too_large"},
        {429, "rate_limit_error", "rate_limit_error"},
        {500, "server_error", "api_error"},
        {503, "server_error", "overloaded_error"},
    };
    for (const auto &[status, openai, anthropic] : types) {
        const serve::api::Refused one{status, "", "x", ""};
        CHECK(Json::parse(serve::api::error_body(one, false))["error"]["type"] == openai);
        CHECK(Json::parse(serve::api::error_body(one, true))["error"]["type"] == anthropic);
    }
}
