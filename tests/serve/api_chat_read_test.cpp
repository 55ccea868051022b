// read_chat: what /v1/chat/completions asks for, and what is refused by name.
#include <doctest/doctest.h>

#include "tests/serve/api_cases.h"

namespace {

using api_cases::refusal;
using serve::api::Answer;
using serve::api::Json;
using serve::api::read_chat;

std::string chat_with(const std::string &members) {
    return R"({"messages":[{"role":"user","content":"a"}])" +
           std::string(members.empty() ? "" : ",") + members + "}";
}

const char *const kTools =
    R"("tools":[{"type":"function","function":{"name":"weather","description":"of a town",)"
    R"("parameters":{"type":"object","properties":{"town":{"type":"string"}}},"strict":true}},)"
    R"({"type":"function","function":{"name":"time"}}])";

} // namespace

TEST_CASE("read_chat: what is not said is left to the model") {
    const auto request = read_chat(chat_with(""));
    CHECK(request.dialect == serve::api::Dialect::chat);
    CHECK(request.model.empty());
    CHECK(request.conversation.dump() == R"({"messages":[{"role":"user","content":"a"}]})");
    CHECK_FALSE(request.temperature.has_value());
    CHECK_FALSE(request.tokens_max.has_value());
    CHECK_FALSE(request.seed.has_value());
    CHECK(request.form.kind == STASIS_CONSTRAINT_NONE);
    CHECK(request.choices == 1);
    CHECK(request.parallel);
    CHECK_FALSE(request.stream);
}

TEST_CASE("read_chat: settings") {
    const auto request = read_chat(chat_with(
        R"("model":"m","temperature":0.5,"top_p":0.25,"min_p":0.125,"top_k":40,)"
        R"("repetition_penalty":1.5,"frequency_penalty":-1,"presence_penalty":2,"seed":-1,)"
        R"("logit_bias":{"17":-100,"3":1.5},"max_tokens":7,"stop":["x","yz"],"n":3,)"
        R"("logprobs":true,"top_logprobs":2,"stream":true,)"
        R"("stream_options":{"include_usage":true},)"
        R"("user":"someone","store":true,"metadata":{"a":"b"},"service_tier":"auto",)"
        R"("audio":null)"));
    CHECK(request.model == "m");
    CHECK(request.temperature == 0.5F);
    CHECK(request.top_p == 0.25F);
    CHECK(request.min_p == 0.125F);
    CHECK(request.top_k == 40U);
    CHECK(request.repetition_penalty == 1.5F);
    CHECK(request.frequency_penalty == -1.0F);
    CHECK(request.presence_penalty == 2.0F);
    CHECK(request.seed == UINT64_MAX);
    CHECK(request.bias == std::vector<std::pair<stasis_token, float>>{{17, -100.0F}, {3, 1.5F}});
    CHECK(request.tokens_max == 7U);
    CHECK(request.stops == std::vector<std::string>{"x", "yz"});
    CHECK(request.choices == 3);
    CHECK(request.log_probabilities);
    CHECK(request.best == 2);
    CHECK(request.stream);
    CHECK(request.stream_usage);
    CHECK_FALSE(request.store); // this API's answers are not asked for again
    CHECK(read_chat(chat_with(R"("max_tokens":7,"max_completion_tokens":9)")).tokens_max == 9U);
    CHECK(read_chat(chat_with(R"("stop":"x")")).stops == std::vector<std::string>{"x"});
    CHECK(read_chat(chat_with(R"("top_k":-1)")).top_k == 0U);
    CHECK(read_chat(chat_with(R"("max_tokens":16.0)")).tokens_max == 16U);
}

TEST_CASE("read_chat: messages become the one form") {
    const auto request = read_chat(
        R"({"messages":[{"content":"be brief","role":"developer"},)"
        R"({"role":"user","name":"Ann","content":[{"type":"text","text":"a"},)"
        R"({"type":"text","text":"b","cache_control":{}}]},)"
        R"({"role":"assistant","content":null,"refusal":null,"annotations":[],"tool_calls":[)"
        R"({"id":"call_1","type":"function","function":{"name":"f",)"
        R"("arguments":"{\"z\":1,\"a\":2.0}"}},)"
        R"({"id":"2","type":"function","function":{"name":"g","arguments":""}}]},)"
        R"({"role":"tool","tool_call_id":"2","content":"two"},)"
        R"({"role":"tool","content":[{"type":"text","text":"one"}],"tool_call_id":"call_1"},)"
        R"({"role":"assistant","reasoning_content":"hm","content":"so"}]})");
    CHECK(request.conversation.dump() ==
          R"({"messages":[{"role":"system","content":"be brief"},)"
          R"({"role":"user","name":"Ann","content":"a\nb"},)"
          R"({"role":"assistant","content":"","tool_calls":[)"
          R"({"id":"1","type":"function","function":{"name":"f","arguments":{"z":1,"a":2.0}}},)"
          R"({"id":"2","type":"function","function":{"name":"g","arguments":{}}}]},)"
          R"({"role":"tool","tool_call_id":"2","name":"g","content":"two"},)"
          R"({"role":"tool","tool_call_id":"1","name":"f","content":"one"},)"
          R"({"role":"assistant","content":"so","reasoning_content":"hm"}]})");
}

TEST_CASE("read_chat: tools, and whether they must be called") {
    const auto request = read_chat(chat_with(kTools));
    CHECK(request.conversation["tools"].dump() ==
          R"([{"type":"function","function":{"name":"weather","description":"of a town",)"
          R"("parameters":{"type":"object","properties":{"town":{"type":"string"}}}}},)"
          R"({"type":"function","function":{"name":"time",)"
          R"("parameters":{"type":"object","properties":{}}}}])");
    CHECK(request.answer == Answer::any);
    const auto choosing = [](const std::string &choice) {
        return chat_with(kTools + (R"(,"parallel_tool_calls":false,"tool_choice":)" + choice));
    };
    CHECK_FALSE(read_chat(choosing(R"("auto")")).parallel);
    CHECK(read_chat(choosing(R"("auto")")).answer == Answer::any);
    CHECK(read_chat(choosing(R"("none")")).answer == Answer::none);
    CHECK(read_chat(choosing(R"("required")")).answer == Answer::tool);
    CHECK(read_chat(choosing(R"("required")")).tool.empty());
    const auto named = read_chat(choosing(R"({"type":"function","function":{"name":"time"}})"));
    CHECK(named.answer == Answer::tool);
    CHECK(named.tool == "time");
    CHECK(refusal(read_chat, choosing(R"({"type":"function","function":{"name":"x"}})")) ==
          "tool_choice invalid_value: 'tool_choice' names 'x', which 'tools' lacks");
    CHECK(refusal(read_chat, chat_with(R"("tool_choice":"required")"))
              .starts_with("tool_choice invalid_value: "));
}

TEST_CASE("read_chat: forms of the reply") {
    const auto form = [](const std::string &members) { return read_chat(chat_with(members)).form; };
    CHECK(form(R"("response_format":{"type":"text"})").kind == STASIS_CONSTRAINT_NONE);
    CHECK(form(R"("response_format":{"type":"json_object"})").text == R"({"type":"object"})");
    const auto schema = form(R"("response_format":{"type":"json_schema","json_schema":)"
                             R"({"name":"n","strict":true,"schema":{"b":1,"a":2}}})");
    CHECK(schema.kind == STASIS_CONSTRAINT_JSON_SCHEMA);
    CHECK(schema.text == R"({"b":1,"a":2})");
    CHECK(form(R"("response_format":{"type":"json_schema","json_schema":{"name":"n"}})").kind ==
          STASIS_CONSTRAINT_JSON);
    CHECK(form(R"("guided_regex":"a+")").kind == STASIS_CONSTRAINT_REGEX);
    CHECK(form(R"("guided_grammar":"root ::= x")").kind == STASIS_CONSTRAINT_GRAMMAR);
    CHECK(form(R"("guided_json":{"type":"null"})").text == R"({"type":"null"})");
    CHECK(form(R"("guided_json":"{\"type\":\"null\"}")").text == R"({"type":"null"})");
    CHECK(form(R"("guided_choice":["a.b","c"])").text == R"((?:a\.b)|(?:c))");
    CHECK(form(R"("structured_outputs":{"regex":"b+"})").text == "b+");
    CHECK(refusal(read_chat, chat_with(R"("guided_regex":"a","guided_grammar":"b")"))
              .starts_with("guided_grammar invalid_value: "));
    CHECK(refusal(read_chat, chat_with(R"("response_format":{"type":"json_object"},)"
                                       R"("structured_outputs":{"regex":"a"})"))
              .starts_with("structured_outputs.regex invalid_value: "));
}

TEST_CASE("read_chat: switches of the template") {
    const auto switches = [](const std::string &members) {
        Json conversation = read_chat(chat_with(members)).conversation;
        conversation.erase("messages");
        return conversation.dump();
    };
    CHECK(switches(R"("reasoning_effort":"none")") == R"({"enable_thinking":false})");
    CHECK(switches(R"("reasoning_effort":"minimal")") ==
          R"({"reasoning_effort":"low","enable_thinking":true})");
    CHECK(switches(R"("reasoning_effort":"high","chat_template_kwargs":{"x":[1],)"
                   R"("enable_thinking":false,"y":null})") ==
          R"({"reasoning_effort":"high","enable_thinking":false,"x":[1]})");
    CHECK(refusal(read_chat, chat_with(R"("chat_template_kwargs":{"messages":[]})"))
              .starts_with("chat_template_kwargs.messages unsupported_parameter: "));
    CHECK(refusal(read_chat, chat_with(R"("reasoning_effort":"much")"))
              .starts_with("reasoning_effort invalid_value: "));
}

TEST_CASE("read_chat: refuses by name what is wrong") {
    const std::pair<std::string, std::string> cases[] = {
        {chat_with(R"("audio":{"voice":"a"})"), "audio unsupported_parameter"},
        {chat_with(R"("modalities":["text","audio"])"), "modalities unsupported_value"},
        {chat_with(R"("web_search_options":{})"), "web_search_options unsupported_parameter"},
        {chat_with(R"("functions":[])"), "functions unsupported_parameter"},
        {chat_with(R"("max_tokens":0)"), "max_tokens invalid_value"},
        {chat_with(R"("max_tokens":1.5)"), "max_tokens invalid_value"},
        {chat_with(R"("max_tokens":99999999999999999999)"), "max_tokens invalid_value"},
        {chat_with(R"("max_tokens":18446744073709551615)"), "max_tokens invalid_value"},
        {chat_with(R"("temperature":"hot")"), "temperature invalid_type"},
        {chat_with(R"("temperature":-1)"), "temperature invalid_value"},
        {chat_with(R"("stream":1)"), "stream invalid_type"},
        {chat_with(R"("stop":["a",""])"), "stop invalid_value"},
        {chat_with(R"("stop":[1])"), "stop invalid_type"},
        {chat_with(R"("top_logprobs":1)"), "top_logprobs invalid_value"},
        {chat_with(R"("logit_bias":{"x":1})"), "logit_bias invalid_value"},
        {chat_with(R"("logit_bias":{"1":101})"), "logit_bias.1 invalid_value"},
        {chat_with(R"("n":0)"), "n invalid_value"},
        {chat_with(R"("tempratur":1)"), "tempratur unknown_parameter"},
        {chat_with(R"("response_format":{"type":"yaml"})"), "response_format.type invalid_value"},
        {chat_with(R"("tools":[{"type":"web_search"}])"), "tools[0].type unsupported_value"},
        {chat_with(R"("tools":[{"type":"function","function":{}}])"),
         "tools[0].function.name missing_required_parameter"},
        {R"({"messages":[]})", "messages invalid_value"},
        {R"({})", "messages missing_required_parameter"},
        {R"({"messages":[1]})", "messages[0] invalid_type"},
        {R"({"messages":[{"role":"user"}]})", "messages[0].content missing_required_parameter"},
        {R"({"messages":[{"role":"robot","content":"a"}]})", "messages[0].role invalid_value"},
        {R"({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]})",
         "messages[0].content[0] unsupported_value"},
        {R"({"messages":[{"role":"tool","content":"a"}]})",
         "messages[0].tool_call_id missing_required_parameter"},
        {R"({"messages":[{"role":"assistant","tool_calls":[{"id":"1","function":)"
         R"({"name":"f","arguments":"[]"}}]}]})",
         "messages[0].tool_calls[0].function.arguments invalid_value"},
        {"[]", " invalid_json"},
        {"", " invalid_json"},
        {"{\"messages\":\"\xff\"}", " invalid_json"},
        {std::string(101, '['), " invalid_json: the body nests deeper than 100 levels"},
    };
    for (const auto &[body, expected] : cases) {
        const auto &shown = body; // clang does not capture a binding
        CAPTURE(shown);
        const std::string got = refusal(read_chat, body);
        CHECK(got.substr(0, expected.size()) == expected);
        CHECK(got.find(": ") + 2 < got.size());
    }
}

TEST_CASE("read_chat: an object of a million members is refused, not searched through") {
    std::string body = R"({"logit_bias":{)";
    for (int i = 0; i < 1000000; ++i) {
        body += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
    }
    CHECK(refusal(read_chat, body + "}}") ==
          " invalid_json: the body has objects of too many members");
}
