// Replies of /v1/chat/completions, whole and in pieces, and that a client can send them back.
#include <doctest/doctest.h>

#include <cmath>

#include "tests/serve/api_cases.h"

namespace {

using api_cases::events;
using api_cases::outcome;
using api_cases::written;
using serve::api::Finish;
using serve::api::GenerationRequest;
using serve::api::Json;
using serve::api::Reply;

GenerationRequest asking(bool stream) {
    GenerationRequest request;
    request.conversation = Json::parse(R"({"messages":[{"role":"user","content":"a"}]})");
    request.stream = stream;
    return request;
}

// The message that a client has put together of a stream's deltas.
Json put_together(const std::vector<Json> &stream) {
    Json message = {{"role", "assistant"}, {"content", ""}};
    for (const Json &piece : stream) {
        if (!piece.is_object() || piece["choices"].empty()) {
            continue;
        }
        const Json &delta = piece["choices"][0]["delta"];
        for (const char *text : {"content", "reasoning_content"}) {
            if (delta.contains(text)) {
                message[text] = message.value(text, std::string()) + delta[text].get<std::string>();
            }
        }
        if (delta.contains("tool_calls")) {
            for (Json call : delta["tool_calls"]) {
                CHECK(call["index"] ==
                      (message.contains("tool_calls") ? message["tool_calls"].size() : size_t{0}));
                call.erase("index");
                message["tool_calls"].push_back(call);
            }
        }
    }
    return message;
}

// What read_chat makes of the request's conversation with this message behind it.
Json read_again(const GenerationRequest &request, const Json &message) {
    Json body = request.conversation;
    body["messages"].push_back(message);
    return serve::api::read_chat(body.dump()).conversation;
}

} // namespace

TEST_CASE("chat replies: a whole body") {
    CHECK(written(asking(false), api_cases::greeting(), Finish::length) ==
          R"({"id":"chatcmpl-unique","object":"chat.completion","created":1700000000,)"
          R"("model":"small","choices":[{"index":0,"message":{"role":"assistant",)"
          "\"content\":\"Good day \xc3\xa9.\","
          R"("refusal":null,"reasoning_content":"They greet me."},"logprobs":null,)"
          R"("finish_reason":"length"}],"usage":{"prompt_tokens":12,"completion_tokens":5,)"
          R"("total_tokens":17,"prompt_tokens_details":{"cached_tokens":8},)"
          R"("completion_tokens_details":{"reasoning_tokens":2}}})");
    const Json body = Json::parse(written(asking(false), api_cases::two_calls(), Finish::calls));
    CHECK(body["choices"][0]["finish_reason"] == "tool_calls");
    CHECK(body["choices"][0]["message"]["content"] == nullptr);
    CHECK(body["choices"][0]["message"]["tool_calls"].dump() ==
          R"([{"id":"call_aaaaaaaaa","type":"function","function":{"name":"weather",)"
          R"("arguments":"{\"town\":\"Bern\",\"days\":1.5}"}},)"
          R"({"id":"call_bbbbbbbbb","type":"function","function":{"name":"time",)"
          R"("arguments":"{}"}}])");
}

TEST_CASE("chat replies: a stream") {
    GenerationRequest request = asking(true);
    request.stream_usage = true;
    const auto stream = events(written(request, api_cases::greeting(), Finish::stop_string));
    REQUIRE(stream.size() == 8); // role, thoughts (2), thoughts and text, text, finish, usage, end
    CHECK(stream[0].dump() ==
          R"({"id":"chatcmpl-unique","object":"chat.completion.chunk","created":1700000000,)"
          R"("model":"small","choices":[{"index":0,"delta":{"role":"assistant","content":""},)"
          R"("logprobs":null,"finish_reason":null}],"usage":null})");
    CHECK(stream[1]["choices"][0]["delta"].dump() == R"({"reasoning_content":"They"})");
    CHECK(stream[3]["choices"][0]["delta"].dump() ==
          R"({"reasoning_content":"t me.","content":"Good"})");
    CHECK(stream[5]["choices"][0].dump() ==
          R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"})");
    CHECK(stream[6]["choices"].empty());
    CHECK(stream[6]["usage"]["total_tokens"] == 17);
    CHECK(stream[7] == "[DONE]");
}

TEST_CASE("chat replies: what a client sends back is what is stored") {
    for (const Reply &reply : {api_cases::greeting(), api_cases::two_calls(), Reply{}}) {
        const Json stored = serve::api::with_reply(asking(false).conversation, reply);
        const Json body = Json::parse(written(asking(false), reply, Finish::stop));
        CHECK(read_again(asking(false), body["choices"][0]["message"]) == stored);
        const auto stream = events(written(asking(true), reply, Finish::stop));
        CHECK(read_again(asking(true), put_together(stream)) == stored);
    }
}

TEST_CASE("chat replies: several choices end together") {
    for (const bool stream : {false, true}) {
        GenerationRequest request = asking(stream);
        request.choices = 2;
        request.stream_usage = true;
        const auto writer = serve::api::make_writer(request);
        std::string all = writer->begin(api_cases::start());
        Reply first = api_cases::greeting(), second;
        second.content = "Hello.";
        all += writer->grow(1, second);
        serve::api::Outcome ended = outcome(Finish::stop);
        ended.usage.cached = 12; // the other's prompt
        const std::string early = writer->end(1, second, ended);
        CHECK(early.find("[DONE]") == std::string::npos);
        CHECK((stream || early.empty()));
        all += early + writer->end(0, first, outcome(Finish::length));
        if (stream) {
            const auto pieces = events(all);
            CHECK(pieces[1]["choices"][0]["index"] == 1);
            CHECK(pieces.back() == "[DONE]");
            const Json &usage = pieces[pieces.size() - 2]["usage"];
            CHECK(usage["completion_tokens"] == 10);
            CHECK(usage["prompt_tokens_details"]["cached_tokens"] == 8);
        } else {
            const Json body = Json::parse(all);
            CHECK(body["choices"][0]["finish_reason"] == "length");
            CHECK(body["choices"][1]["message"]["content"] == "Hello.");
            CHECK(body["usage"]["prompt_tokens"] == 12);
            CHECK(body["usage"]["completion_tokens"] == 10);
        }
    }
}

TEST_CASE("chat replies: likelihoods have their bytes, of half characters too") {
    Reply reply;
    reply.content = "\xc3\xa9";
    reply.likelihoods = {{"\xc3", 5, -0.5F, {{"\xc3", 5, -0.5F, {}}, {"e", 6, -INFINITY, {}}}},
                         {"\xa9", 7, 0.0F, {}}};
    const std::string first =
        "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-0.5,\"bytes\":[195],\"top_logprobs\":["
        "{\"token\":\"\xef\xbf\xbd\",\"logprob\":-0.5,\"bytes\":[195]},"
        "{\"token\":\"e\",\"logprob\":-9999.0,\"bytes\":[101]}]}";
    const std::string second =
        "{\"token\":\"\xef\xbf\xbd\",\"logprob\":0.0,\"bytes\":[169],\"top_logprobs\":[]}";
    GenerationRequest request = asking(false);
    request.log_probabilities = true;
    const Json body = Json::parse(written(request, reply, Finish::stop, 0));
    CHECK(body["choices"][0]["logprobs"].dump() ==
          "{\"content\":[" + first + "," + second + "],\"refusal\":null}");
    request.stream = true;
    const auto writer = serve::api::make_writer(request);
    writer->begin(api_cases::start());
    Reply half;
    half.likelihoods = {reply.likelihoods[0]};
    const auto piece = events(writer->grow(0, half));
    CHECK(piece.at(0)["choices"][0]["logprobs"]["content"].dump() == "[" + first + "]");
    const auto rest = events(writer->end(0, reply, outcome(Finish::stop)));
    CHECK(rest.at(0)["choices"][0]["logprobs"]["content"].dump() == "[" + second + "]");
    CHECK(rest.at(0)["choices"][0]["delta"]["content"] == "\xc3\xa9");
}

TEST_CASE("chat replies: a stream that fails says so in the API's form") {
    const GenerationRequest request = asking(true);
    const auto writer = serve::api::make_writer(request);
    writer->begin(api_cases::start());
    CHECK(writer->fail({503, "server_stopped", "the server stops", ""}) ==
          "data: {\"error\":{\"message\":\"the server stops\",\"type\":\"server_error\","
          "\"param\":null,\"code\":\"server_stopped\"}}\n\ndata: [DONE]\n\n");
    CHECK(writer->ping() == ": ping\n\n");
}

TEST_CASE("call_id: nine letters and digits that depend on what they belong to") {
    const Json conversation = asking(false).conversation;
    const std::string id = serve::api::call_id(conversation, 0, 0);
    CHECK(id.size() == 9);
    CHECK(id.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyz") == std::string::npos);
    CHECK(id == serve::api::call_id(conversation, 0, 0));
    CHECK(id != serve::api::call_id(conversation, 0, 1));
    CHECK(id != serve::api::call_id(conversation, 1, 0));
    CHECK(id != serve::api::call_id(Json(), 0, 0));
}
