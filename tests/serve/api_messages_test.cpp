// /v1/messages: what it asks for, its replies, and that a client can send them back.
#include <doctest/doctest.h>

#include <cstring>

#include "tests/serve/api_cases.h"

namespace {

using api_cases::events;
using api_cases::outcome;
using api_cases::refusal;
using api_cases::written;
using serve::api::Answer;
using serve::api::Finish;
using serve::api::GenerationRequest;
using serve::api::Json;
using serve::api::read_messages;
using serve::api::Reply;

std::string message_with(const std::string &members) {
    return R"({"max_tokens":9,"messages":[{"role":"user","content":"a"}],)"
           R"("tools":[{"name":"f","input_schema":{"type":"object"}}])" +
           std::string(members.empty() ? "" : ",") + members + "}";
}

// The content that a client has put together of a stream's events.
Json blocks_of(const std::vector<Json> &stream) {
    Json blocks = Json::array();
    std::string arguments;
    for (const Json &one : stream) {
        if (one["type"] == "content_block_start") {
            CHECK(one["index"] == blocks.size());
            blocks.push_back(one["content_block"]);
            arguments.clear();
        } else if (one["type"] == "content_block_delta") {
            CHECK(one["index"] == blocks.size() - 1);
            const Json &delta = one["delta"];
            if (delta["type"] == "input_json_delta") {
                arguments += delta["partial_json"].get<std::string>();
                blocks.back()["input"] = Json::parse(arguments);
                continue;
            }
            const std::string kind = blocks.back()["type"];
            CHECK(delta["type"] == kind + "_delta");
            blocks.back()[kind].get_ref<std::string &>() += delta[kind].get<std::string>();
        }
    }
    return blocks;
}

std::string types_of(const std::vector<Json> &stream) {
    std::string types;
    for (const Json &one : stream) {
        types += (types.empty() ? "" : " ") + one["type"].get<std::string>();
    }
    return types;
}

} // namespace

TEST_CASE("read_messages: settings") {
    const auto request = read_messages(message_with(
        R"("model":"m","temperature":0.5,"top_p":0.25,"top_k":4,"stop_sequences":["x","y"],)"
        R"("stream":true,"metadata":{"user_id":"u"},"thinking":{"type":"enabled",)"
        R"("budget_tokens":1024},"service_tier":"auto")"));
    CHECK(request.dialect == serve::api::Dialect::messages);
    CHECK(request.model == "m");
    CHECK(request.temperature == 0.5F);
    CHECK(request.top_k == 4U);
    CHECK(request.tokens_max == 9U);
    CHECK(request.stops == std::vector<std::string>{"x", "y"});
    CHECK(request.stream);
    CHECK(request.answer == Answer::any);
    CHECK(request.conversation.dump() ==
          R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function",)"
          R"("function":{"name":"f","parameters":{"type":"object"}}}],"enable_thinking":true})");
    CHECK(read_messages(message_with(R"("thinking":{"type":"disabled"})"))
              .conversation["enable_thinking"] == false);
    const auto formed = read_messages(message_with(
        R"("output_config":{"effort":"low","format":{"type":"json_schema","schema":{"b":1}}})"));
    CHECK(formed.form.kind == STASIS_CONSTRAINT_JSON_SCHEMA);
    CHECK(formed.form.text == R"({"b":1})");
    CHECK(formed.conversation["reasoning_effort"] == "low");
}

TEST_CASE("read_messages: whether a tool must be called") {
    const auto choosing = [](const std::string &choice) {
        return read_messages(message_with(R"("tool_choice":)" + choice));
    };
    CHECK(choosing(R"({"type":"auto"})").answer == Answer::any);
    CHECK(choosing(R"({"type":"none"})").answer == Answer::none);
    CHECK(choosing(R"({"type":"any"})").answer == Answer::tool);
    CHECK(choosing(R"({"type":"any"})").parallel);
    const auto one = choosing(R"({"type":"tool","name":"f","disable_parallel_tool_use":true})");
    CHECK(one.tool == "f");
    CHECK_FALSE(one.parallel);
    CHECK(refusal(read_messages, message_with(R"("tool_choice":{"type":"tool","name":"g"})"))
              .starts_with("tool_choice invalid_value"));
}

TEST_CASE("read_messages: blocks become the one form") {
    const auto request = read_messages(
        R"({"max_tokens":9,"system":[{"type":"text","text":"be","cache_control":{}},)"
        R"({"type":"text","text":"brief"}],"messages":[{"role":"user","content":"a"},)"
        R"({"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},)"
        R"({"type":"text","text":"so"},{"type":"tool_use","id":"toolu_1","name":"f",)"
        R"("input":{"z":1,"a":2}},{"type":"tool_use","id":"2","name":"g","input":{}}]},)"
        R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1",)"
        R"("content":[{"type":"text","text":"one"}]},{"type":"tool_result","tool_use_id":"2"},)"
        R"({"type":"text","text":"b"},{"type":"text","text":"c"}]}]})");
    CHECK(request.conversation.dump() ==
          R"({"messages":[{"role":"system","content":"be\nbrief"},{"role":"user","content":"a"},)"
          R"({"role":"assistant","content":"so","reasoning_content":"hm","tool_calls":[)"
          R"({"id":"1","type":"function","function":{"name":"f","arguments":{"z":1,"a":2}}},)"
          R"({"id":"2","type":"function","function":{"name":"g","arguments":{}}}]},)"
          R"({"role":"tool","tool_call_id":"1","name":"f","content":"one"},)"
          R"({"role":"tool","tool_call_id":"2","name":"g","content":""},)"
          R"({"role":"user","content":"b\nc"}]})");
}

TEST_CASE("read_messages: refuses by name what is wrong") {
    const std::string start = R"({"max_tokens":9,"messages":)";
    const std::pair<std::string, const char *> cases[] = {
        {R"({"messages":[{"role":"user","content":"a"}]})",
         "max_tokens missing_required_parameter"},
        {R"({"max_tokens":9})", "messages missing_required_parameter"},
        {start + "[]}", "messages invalid_value"},
        {start + R"([{"role":"robot","content":"a"}]})", "messages[0].role invalid_value"},
        {start + R"([{"role":"user","content":[{"type":"image"}]}]})",
         "messages[0].content[0] unsupported_value"},
        {start + R"([{"role":"user","content":[{"type":"text"}]}]})",
         "messages[0].content[0].text missing_required_parameter"},
        {start + R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})",
         "messages unsupported_value"},
        {start + R"([{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f",)"
                 R"("input":"{}"}]}]})",
         "messages[0].content[0].input invalid_type"},
        {message_with(R"("tool_choice":{"type":"some"})"), "tool_choice.type invalid_value"},
        {message_with(R"("thinking":{"type":"much"})"), "thinking.type invalid_value"},
        {message_with(R"("mcp_servers":[])"), "mcp_servers unsupported_parameter"},
        {message_with(R"("surprise":1)"), "surprise unknown_parameter"},
        {message_with(R"("stop_sequences":[""])"), "stop_sequences invalid_value"},
        {R"({"max_tokens":9,"messages":[{"role":"user","content":"a"}],"tools":[)"
         R"({"type":"bash_20250124","name":"bash"}]})",
         "tools[0].type unsupported_value"},
    };
    for (const auto &[body, expected] : cases) {
        const auto &shown = body; // clang does not capture a binding
        CAPTURE(shown);
        CHECK(refusal(read_messages, body).substr(0, strlen(expected)) == expected);
    }
    const auto counted = serve::api::read_token_count(
        R"({"model":"m","messages":[{"role":"assistant","content":"a"}]})");
    CHECK(counted.conversation.dump() == R"({"messages":[{"role":"assistant","content":"a"}]})");
    CHECK(refusal(serve::api::read_token_count,
                  R"({"max_tokens":1,"messages":[{"role":"user","content":"a"}]})")
              .starts_with("max_tokens unknown_parameter"));
}

TEST_CASE("message replies: a whole body") {
    GenerationRequest request = read_messages(message_with(""));
    CHECK(written(request, api_cases::greeting(), Finish::stop) ==
          R"({"id":"msg_unique","type":"message","role":"assistant","model":"small","content":[)"
          R"({"type":"thinking","thinking":"They greet me.","signature":""},)"
          "{\"type\":\"text\",\"text\":\"Good day \xc3\xa9.\"}],"
          R"("stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":4,)"
          R"("cache_creation_input_tokens":0,"cache_read_input_tokens":8,"output_tokens":5}})");
    const Json called = Json::parse(written(request, api_cases::two_calls(), Finish::calls));
    CHECK(called["stop_reason"] == "tool_use");
    CHECK(called["content"][1].dump() == R"({"type":"tool_use","id":"toolu_aaaaaaaaa",)"
                                         R"("name":"weather","input":{"town":"Bern","days":1.5}})");
    const auto writer = serve::api::make_writer(request);
    writer->begin(api_cases::start());
    serve::api::Outcome stopped = outcome(Finish::stop_string);
    stopped.stop_string = "x";
    const Json body = Json::parse(writer->end(0, Reply{}, stopped));
    CHECK(body["content"].empty());
    CHECK(body["stop_reason"] == "stop_sequence");
    CHECK(body["stop_sequence"] == "x");
}

TEST_CASE("message replies: a stream") {
    GenerationRequest request = read_messages(message_with(R"("stream":true)"));
    auto stream = events(written(request, api_cases::greeting(), Finish::length, 1));
    CHECK(types_of(stream) ==
          "message_start content_block_start content_block_delta content_block_stop "
          "content_block_start content_block_delta content_block_delta content_block_stop "
          "message_delta message_stop");
    CHECK(stream[0].dump() ==
          R"({"type":"message_start","message":{"id":"msg_unique","type":"message",)"
          R"("role":"assistant","model":"small","content":[],"stop_reason":null,)"
          R"("stop_sequence":null,"usage":{"input_tokens":12,"cache_creation_input_tokens":0,)"
          R"("cache_read_input_tokens":0,"output_tokens":0}}})");
    CHECK(stream[1].dump() ==
          R"({"type":"content_block_start","index":0,)"
          R"("content_block":{"type":"thinking","thinking":"","signature":""}})");
    CHECK(stream[5].dump() == R"({"type":"content_block_delta","index":1,)"
                              R"("delta":{"type":"text_delta","text":"Good"}})");
    CHECK(stream[8].dump() ==
          R"({"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},)"
          R"("usage":{"input_tokens":4,"cache_creation_input_tokens":0,)"
          R"("cache_read_input_tokens":8,"output_tokens":5}})");
    stream = events(written(request, api_cases::two_calls(), Finish::calls, 1));
    CHECK(types_of(stream) ==
          "message_start content_block_start content_block_delta content_block_stop "
          "content_block_start content_block_delta content_block_stop "
          "content_block_start content_block_delta content_block_stop "
          "message_delta message_stop");
    const auto writer = serve::api::make_writer(request);
    CHECK(events(writer->ping()).at(0)["type"] == "ping");
    CHECK(writer->fail({503, "", "full", ""}) ==
          "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
          "\"message\":\"full\"}}\n\n");
}

TEST_CASE("message replies: what a client sends back is what is stored") {
    const auto again = [](const Json &content) {
        Json body = Json::parse(message_with(""));
        body["messages"].push_back({{"role", "assistant"}, {"content", content}});
        body["messages"].push_back({{"role", "user"}, {"content", "next"}});
        Json read = read_messages(body.dump()).conversation;
        read["messages"].erase(read["messages"].size() - 1);
        return read;
    };
    GenerationRequest request = read_messages(message_with(""));
    for (const Reply &reply : {api_cases::greeting(), api_cases::two_calls(), Reply{}}) {
        const Json stored = serve::api::with_reply(request.conversation, reply);
        request.stream = false;
        CHECK(again(Json::parse(written(request, reply, Finish::stop))["content"]) == stored);
        request.stream = true;
        CHECK(again(blocks_of(events(written(request, reply, Finish::stop)))) == stored);
    }
    // Thoughts, text and calls in turns.
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
    const Json blocks = blocks_of(events(all + writer->end(0, mixed, outcome(Finish::calls))));
    CHECK(blocks.size() == 6);
    CHECK(again(blocks) == serve::api::with_reply(request.conversation, mixed));
}
