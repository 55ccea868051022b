// Replies of /v1/responses, whole and as events, that a client can send them back, and lists of
// input items.
#include <doctest/doctest.h>

#include <map>

#include "tests/serve/api_cases.h"

namespace {

using api_cases::events;
using api_cases::outcome;
using api_cases::written;
using serve::api::Finish;
using serve::api::GenerationRequest;
using serve::api::Json;
using serve::api::read_response;
using serve::api::Reply;

// The types of a stream's events, without "response.", each once where it comes several times in a
// row. Checks the numbers that all events have.
std::string types_in(const std::vector<Json> &stream) {
    std::string types, last;
    for (size_t i = 0; i < stream.size(); ++i) {
        CHECK(stream[i]["sequence_number"] == i);
        const std::string type = stream[i]["type"].get<std::string>().substr(9);
        types += type == last ? "" : (types.empty() ? "" : " ") + type;
        last = type;
    }
    return types;
}

const char *const kWholeAnswer =
    R"({"id":"resp_DIGEST","object":"response","created_at":1700000000,"status":"completed",)"
    R"("error":null,"incomplete_details":null,"model":"small","output":[{"type":"reasoning",)"
    R"("id":"rs_ID0","summary":[],"content":[{"type":"reasoning_text",)"
    R"("text":"They greet me."}],"status":"completed"},{"type":"message","id":"msg_ID1",)"
    R"("status":"completed","role":"assistant","content":[{"type":"output_text",)"
    "\"text\":\"Good day \xc3\xa9.\""
    R"(,"annotations":[],"logprobs":[]}]}],"usage":{"input_tokens":12,)"
    R"("input_tokens_details":{"cached_tokens":8,"cache_write_tokens":0},"output_tokens":5,)"
    R"("output_tokens_details":{"reasoning_tokens":2},"total_tokens":17},)";

// The text with each name in place of what it stands for.
std::string put(std::string text, const std::map<std::string, std::string> &names) {
    for (const auto &[name, value] : names) {
        for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size()) {
            text.replace(at, name.size(), value);
        }
    }
    return text;
}

} // namespace

TEST_CASE("response replies: a whole body") {
    const GenerationRequest request = read_response(R"({"input":"a"})");
    const std::string body = written(request, api_cases::greeting(), Finish::stop);
    const Json parsed = Json::parse(body);
    const std::string first = parsed["output"][0]["id"], second = parsed["output"][1]["id"];
    CHECK(first.size() == 12);
    CHECK(second.size() == 13);
    CHECK(first.substr(3) != second.substr(4));
    std::string echo = request.echo.dump();
    CHECK(body == put(kWholeAnswer,
                      {{"DIGEST", std::string(64, 'd')}, {"rs_ID0", first}, {"msg_ID1", second}}) +
                      echo.substr(1));
    CHECK(body == written(request, api_cases::greeting(), Finish::stop)); // ids are not drawn
    const Json cut = Json::parse(written(request, api_cases::greeting(), Finish::length));
    CHECK(cut["status"] == "incomplete");
    CHECK(cut["incomplete_details"]["reason"] == "max_output_tokens");
    CHECK(cut["output"][0]["status"] == "completed");
    CHECK(cut["output"][1]["status"] == "incomplete");
}

TEST_CASE("response replies: events of thoughts and text") {
    GenerationRequest request = read_response(R"({"input":"a","stream":true})");
    const auto stream = events(written(request, api_cases::greeting(), Finish::stop));
    CHECK(types_in(stream) ==
          "created in_progress output_item.added content_part.added reasoning_text.delta "
          "reasoning_text.done content_part.done output_item.done output_item.added "
          "content_part.added output_text.delta output_text.done content_part.done "
          "output_item.done completed");
    CHECK(stream[0]["response"]["id"] == "resp_unique");
    CHECK(stream[0]["response"]["status"] == "in_progress");
    CHECK(stream[0]["response"]["output"].empty());
    const std::string id = stream[2]["item"]["id"];
    CHECK(stream[2].dump() == R"({"type":"response.output_item.added","sequence_number":2,)"
                              R"("output_index":0,"item":{"type":"reasoning","id":")" +
                                  id + R"(","summary":[],"content":[],"status":"in_progress"}})");
    CHECK(stream[4].dump() == R"({"type":"response.reasoning_text.delta","sequence_number":4,)"
                              R"("item_id":")" +
                                  id + R"(","output_index":0,"content_index":0,"delta":"They"})");
    std::string text;
    for (const Json &one : stream) {
        if (one["type"] == "response.output_text.delta") {
            CHECK(one["output_index"] == 1);
            text += one["delta"].get<std::string>();
        } else if (one["type"] == "response.output_text.done") {
            CHECK(one["text"] == text);
        }
    }
    CHECK(text == api_cases::greeting().content);
    GenerationRequest whole = request;
    whole.stream = false;
    Json answer = Json::parse(written(whole, api_cases::greeting(), Finish::stop));
    CHECK(answer["id"] == "resp_" + std::string(64, 'd'));
    answer["id"] = "resp_unique"; // that of the first event
    CHECK(stream.back()["response"] == answer);
    CHECK(serve::api::response_id(request, api_cases::start(), outcome(Finish::stop)) ==
          "resp_unique");
    CHECK(events(written(request, api_cases::greeting(), Finish::length)).back()["type"] ==
          "response.incomplete");
}

TEST_CASE("response replies: events of calls") {
    GenerationRequest request = read_response(R"({"input":"a","stream":true})");
    const auto stream = events(written(request, api_cases::two_calls(), Finish::calls));
    CHECK(types_in(stream) ==
          "created in_progress output_item.added content_part.added reasoning_text.delta "
          "reasoning_text.done content_part.done output_item.done "
          "output_item.added function_call_arguments.delta function_call_arguments.done "
          "output_item.done output_item.added function_call_arguments.delta "
          "function_call_arguments.done output_item.done completed");
    const Json &done = stream[stream.size() - 6];
    CHECK(done["item"]["call_id"] == "call_aaaaaaaaa");
    CHECK(done["item"]["arguments"] == R"({"town":"Bern","days":1.5})");
    CHECK(done["item"]["status"] == "completed");
    CHECK(stream[stream.size() - 4]["item_id"] == stream[stream.size() - 2]["item"]["id"]);
    CHECK(stream[stream.size() - 4]["output_index"] == 2);
}

TEST_CASE("response replies: likelihoods are beside the text they belong to") {
    GenerationRequest request = read_response(R"({"input":"a","stream":true,"top_logprobs":1})");
    Reply reply;
    reply.content = "ab";
    reply.likelihoods = {{"a", 1, -0.5F, {{"a", 1, -0.5F, {}}}}, {"b", 2, -0.25F, {}}};
    const auto writer = serve::api::make_writer(request);
    writer->begin(api_cases::start());
    Reply half;
    half.content = "a";
    half.likelihoods = {reply.likelihoods[0]};
    const auto begun = events(writer->grow(0, half));
    const std::string first = R"({"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[)"
                              R"({"token":"a","logprob":-0.5,"bytes":[97]}]})";
    const std::string second = R"({"token":"b","logprob":-0.25,"bytes":[98],"top_logprobs":[]})";
    CHECK(begun.back()["logprobs"].dump() == "[" + first + "]");
    const auto rest = events(writer->end(0, reply, outcome(Finish::stop)));
    CHECK(rest[0]["logprobs"].dump() == "[" + second + "]");
    CHECK(rest[1]["logprobs"].dump() == "[" + first + "," + second + "]");
    CHECK(rest.back()["response"]["output"][0]["content"][0]["logprobs"].size() == 2);
}

TEST_CASE("response replies: a stream that fails says so in an answer that has failed") {
    GenerationRequest request = read_response(R"({"input":"a","stream":true})");
    const auto writer = serve::api::make_writer(request);
    writer->begin(api_cases::start());
    const auto failed = events(writer->fail({500, "", "broken", ""})).at(0);
    CHECK(failed["type"] == "response.failed");
    CHECK(failed["sequence_number"] == 2);
    CHECK(failed["response"]["status"] == "failed");
    CHECK(failed["response"]["error"].dump() == R"({"code":"server_error","message":"broken"})");
}

TEST_CASE("response replies: what a client sends back, or names, is what is stored") {
    const Json next = Json{{"role", "user"}, {"content", "next"}};
    for (const bool stream : {false, true}) {
        for (const Reply &reply : {api_cases::greeting(), api_cases::two_calls(), Reply{}}) {
            GenerationRequest request = read_response(R"({"input":"a","instructions":"be"})");
            request.stream = stream;
            const std::string all = written(request, reply, Finish::stop);
            const Json answer = stream ? events(all).back()["response"] : Json::parse(all);
            Json body = Json::parse(R"({"instructions":"be","input":[{"role":"user",)"
                                    R"("content":"a"}]})");
            for (const Json &item : answer["output"]) {
                body["input"].push_back(item);
            }
            const Json stored = serve::api::with_reply(request.conversation, reply);
            CHECK(read_response(body.dump()).conversation == stored);
            body["input"].push_back(next);
            const Json after = Json{{"previous_response_id", answer["id"]},
                                    {"instructions", "be"},
                                    {"input", Json::array({next})}};
            CHECK(read_response(body.dump()).conversation ==
                  serve::api::continued(stored, read_response(after.dump()).conversation));
        }
    }
}

TEST_CASE("response replies: thoughts and text in turns are one message again") {
    GenerationRequest request = read_response(R"({"input":"a","stream":true})");
    const auto writer = serve::api::make_writer(request);
    std::string all = writer->begin(api_cases::start());
    Reply mixed;
    for (const char *piece : {"a ", "b"}) {
        mixed.thoughts += piece;
        all += writer->grow(0, mixed);
        mixed.content += piece;
        all += writer->grow(0, mixed);
        mixed.calls.push_back({piece[0] == 'a' ? "a00000000" : "b00000000", "f", Json::object()});
        all += writer->grow(0, mixed);
    }
    const Json answer =
        events(all + writer->end(0, mixed, outcome(Finish::calls))).back()["response"];
    REQUIRE(answer["output"].size() == 6);
    Json body = Json::parse(R"({"input":[{"role":"user","content":"a"}]})");
    for (const Json &item : answer["output"]) {
        body["input"].push_back(item);
    }
    CHECK(read_response(body.dump()).conversation ==
          serve::api::with_reply(request.conversation, mixed));
}

TEST_CASE("input_items_body: items of a stored conversation, page by page") {
    const GenerationRequest request = read_response(R"({"input":"a","instructions":"be"})");
    Json conversation = serve::api::with_reply(request.conversation, api_cases::two_calls());
    conversation = serve::api::continued(
        conversation, read_response(R"({"instructions":"be","input":[{"type":)"
                                    R"("function_call_output","call_id":"call_aaaaaaaaa",)"
                                    R"("output":"rain"}]})")
                          .conversation);
    const auto list = [&](const serve::api::Page &page) {
        return Json::parse(serve::api::input_items_body(conversation, page));
    };
    const Json all = list({.after = "", .limit = 20, .ascending = true});
    std::string types;
    for (const Json &item : all["data"]) {
        types += item["type"].get<std::string>() + " ";
    }
    CHECK(types == "message reasoning function_call function_call function_call_output ");
    CHECK(all["object"] == "list");
    CHECK(all["has_more"] == false);
    CHECK(all["data"][0]["content"].dump() == R"([{"type":"input_text","text":"a"}])");
    CHECK(all["data"][2]["call_id"] == "call_aaaaaaaaa");
    CHECK(all["data"][4]["call_id"] == "call_aaaaaaaaa");
    CHECK(all["first_id"] == all["data"][0]["id"]);
    CHECK(all["last_id"] == all["data"][4]["id"]);
    for (const bool ascending : {false, true}) { // each item once
        std::vector<Json> found;
        serve::api::Page page{.after = "", .limit = 2, .ascending = ascending};
        for (bool more = true; more; page.after = found.back()["id"]) {
            const Json part = list(page);
            found.insert(found.end(), part["data"].begin(), part["data"].end());
            more = part["has_more"];
        }
        REQUIRE(found.size() == 5);
        CHECK(found[ascending ? 0 : 4] == all["data"][0]);
        CHECK(found[ascending ? 4 : 0] == all["data"][4]);
        CHECK(list(page)["data"].empty());
    }
    CHECK_THROWS_AS(list({.after = "x", .limit = 2, .ascending = true}), serve::api::Refused);
    CHECK_THROWS_AS(list({.after = "", .limit = 0, .ascending = true}), serve::api::Refused);
    CHECK_THROWS_AS(list({.after = "", .limit = 101, .ascending = true}), serve::api::Refused);
}

TEST_CASE("remove_item: the other items stay, with their ids") {
    const auto said = [](const char *thoughts, const char *content) {
        return Json{{"role", "assistant"}, {"content", content}, {"reasoning_content", thoughts}};
    };
    Json record = {{"id", "conv_1"},
                   {"messages",
                    {{{"role", "user"}, {"content", "u1"}},
                     said("t1", "a1"),
                     {{"role", "user"}, {"content", "u2"}},
                     said("t2", "a2")}}};
    serve::api::give_item_ids(record, Json());
    REQUIRE(record["ids"].size() == 4);
    const Json ids = record["ids"];
    REQUIRE(ids[3].size() == 2);
    const Json messages = record["messages"];
    serve::api::remove_item(record, ids[2][0].get<std::string>());
    CHECK(record["ids"] == Json({ids[0], ids[1], ids[3]}));
    CHECK(record["messages"] == Json({messages[0], messages[1], messages[3]}));
    serve::api::remove_item(record, ids[1][1].get<std::string>());
    CHECK(record["ids"] == Json({ids[0], {ids[1][0]}, ids[3]}));
    for (const auto &[message, item] : {std::pair(3, 1), {1, 0}, {0, 0}, {3, 0}}) { // to nothing
        serve::api::remove_item(record, ids[message][item].get<std::string>());
    }
    CHECK(record["messages"].empty());
    CHECK(record["ids"].empty());
}
