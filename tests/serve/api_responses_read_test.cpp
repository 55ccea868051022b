// read_response: what /v1/responses asks for; continued: what follows a stored answer.
#include <doctest/doctest.h>

#include <cstring>

#include "tests/serve/api_cases.h"

namespace {

using api_cases::refusal;
using serve::api::Answer;
using serve::api::Json;
using serve::api::KeptRequest;
using serve::api::read_kept;
using serve::api::read_kept_items;
using serve::api::read_kept_metadata;
using serve::api::read_response;

const char *const kFlatTool =
    R"("tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true}])";

} // namespace

TEST_CASE("read_response: settings, and what the answer repeats") {
    const auto plain = read_response(R"({"input":"a"})");
    CHECK(plain.dialect == serve::api::Dialect::responses);
    CHECK(plain.store);
    CHECK(plain.conversation.dump() == R"({"messages":[{"role":"user","content":"a"}]})");
    CHECK(plain.echo.dump() ==
          R"({"background":false,"instructions":null,"max_output_tokens":null,"metadata":{},)"
          R"("parallel_tool_calls":true,"previous_response_id":null,)"
          R"("reasoning":{"effort":null,"summary":null},"store":true,"temperature":null,)"
          R"("text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],)"
          R"("top_logprobs":0,"top_p":null,"truncation":"disabled"})");
    const auto request = read_response(
        std::string(
            R"({"model":"m","input":"a","instructions":"be brief","store":false,"stream":true,)"
            R"("temperature":0.5,"top_p":0.25,"max_output_tokens":7,"metadata":{"k":"v"},)"
            R"("include":["message.output_text.logprobs","reasoning.encrypted_content"],)"
            R"("top_logprobs":3,"reasoning":{"effort":"high","summary":"auto"},)"
            R"("tool_choice":{"type":"function","name":"f"},"parallel_tool_calls":false,)"
            R"("text":{"format":{"type":"json_schema","name":"n","strict":true,)"
            R"("schema":{"b":1}}},"truncation":"disabled",)") +
        kFlatTool + "}");
    CHECK(request.model == "m");
    CHECK_FALSE(request.store);
    CHECK(request.stream);
    CHECK(request.tokens_max == 7U);
    CHECK(request.log_probabilities);
    CHECK(request.best == 3);
    CHECK(request.answer == Answer::tool);
    CHECK(request.tool == "f");
    CHECK_FALSE(request.parallel);
    CHECK(request.form.text == R"({"b":1})");
    CHECK(request.conversation.dump() ==
          R"({"messages":[{"role":"system","content":"be brief","instructions":true},)"
          R"({"role":"user","content":"a"}],"tools":[{"type":"function","function":)"
          R"({"name":"f","parameters":{"type":"object"}}}],)"
          R"("reasoning_effort":"high","enable_thinking":true})");
    CHECK(request.echo["metadata"]["k"] == "v");
    CHECK(request.echo["tools"][0]["strict"] == true);
    CHECK(request.echo["text"]["format"]["name"] == "n");
    CHECK(read_response(R"({"previous_response_id":"resp_1"})").previous == "resp_1");
    const auto kept = read_response(R"({"input":"a","conversation":"conv_1"})");
    CHECK(kept.kept == "conv_1");
    CHECK(kept.echo["conversation"]["id"] == "conv_1");
    CHECK(read_response(R"({"conversation":{"id":"conv_2"}})").kept == "conv_2");
}

TEST_CASE("read_response: items become the one form") {
    const auto request = read_response(
        R"({"input":[{"role":"developer","content":"be brief"},)"
        R"({"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},)"
        R"({"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"short"}],)"
        R"("content":[{"type":"reasoning_text","text":"hm"}],"encrypted_content":null},)"
        R"({"type":"message","id":"msg_1","status":"completed","role":"assistant",)"
        R"("content":[{"type":"output_text","text":"so","annotations":[]}]},)"
        R"({"type":"function_call","id":"fc_1","call_id":"call_1","name":"f",)"
        R"("arguments":"{\"z\":1}","status":"completed"},)"
        R"({"type":"function_call","call_id":"2","name":"g","arguments":"{}"},)"
        R"({"type":"function_call_output","call_id":"2","output":"two"},)"
        R"({"type":"function_call_output","call_id":"call_1",)"
        R"("output":[{"type":"input_text","text":"one"}]},)"
        R"({"type":"reasoning","summary":[{"type":"summary_text","text":"short"}]},)"
        R"({"role":"assistant","content":"first"},{"role":"assistant","content":"second"}]})");
    CHECK(request.conversation.dump() ==
          R"({"messages":[{"role":"system","content":"be brief"},{"role":"user","content":"a"},)"
          R"({"role":"assistant","content":"so","reasoning_content":"hm","tool_calls":[)"
          R"({"id":"1","type":"function","function":{"name":"f","arguments":{"z":1}}},)"
          R"({"id":"2","type":"function","function":{"name":"g","arguments":{}}}]},)"
          R"({"role":"tool","tool_call_id":"2","name":"g","content":"two"},)"
          R"({"role":"tool","tool_call_id":"1","name":"f","content":"one"},)"
          R"({"role":"assistant","content":"first","reasoning_content":"short"},)"
          R"({"role":"assistant","content":"second"}]})");
}

TEST_CASE("read_response: refuses by name what is wrong") {
    const std::pair<const char *, const char *> cases[] = {
        {R"({})", "input missing_required_parameter"},
        {R"({"input":[]})", "input invalid_value"},
        {R"({"input":7})", "input invalid_type"},
        {R"({"input":[{"type":"item_reference","id":"msg_1"}]})",
         "input[0].type unsupported_value"},
        {R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})",
         "input[0].content[0] unsupported_value"},
        {R"({"input":[{"type":"function_call","call_id":"1","name":"f","arguments":"x"}]})",
         "input[0].arguments invalid_value"},
        {R"({"input":"a","previous_response_id":"resp_1","conversation":"conv_1"})",
         "conversation mutually_exclusive_parameters"},
        {R"({"input":"a","store":false,"conversation":"conv_1"})", "store unsupported_value"},
        {R"({"input":"a","background":true})", "background unsupported_parameter"},
        {R"({"input":"a","truncation":"auto"})", "truncation unsupported_value"},
        {R"({"input":"a","prompt":{"id":"p"}})", "prompt unsupported_parameter"},
        {R"({"input":"a","include":["web_search_call.results"]})", "include unsupported_value"},
        {R"({"input":"a","tools":[{"type":"web_search"}]})", "tools[0].type unsupported_value"},
        {R"({"input":"a","text":{"format":{"type":"grammar"}}})", "text.format.type invalid_value"},
        {R"({"input":"a","metadata":1})", "metadata invalid_type"},
        {R"({"input":"a","max_tokens":1})", "max_tokens unknown_parameter"},
    };
    for (const auto &[body, expected] : cases) {
        const auto &shown = body; // clang does not capture a binding
        CAPTURE(shown);
        CHECK(refusal(read_response, body).substr(0, strlen(expected)) == expected);
    }
    CHECK(read_response(R"({"input":"a","background":false})").echo["background"] == false);
}

TEST_CASE("read_kept: what conversations begin with, and what is added") {
    const KeptRequest made =
        read_kept(R"({"items":[{"role":"developer","content":"a"},{"type":"message",)"
                  R"("role":"assistant","content":[{"type":"output_text","text":"b"}]}],)"
                  R"("metadata":{"k":"v"}})");
    CHECK(made.messages.dump() == R"([{"role":"system","content":"a"},)"
                                  R"({"role":"assistant","content":"b"}])");
    CHECK(made.metadata.dump() == R"({"k":"v"})");
    for (const char *nothing : {"", "{}", R"({"items":[],"metadata":null})"}) {
        CHECK(read_kept(nothing).messages.empty());
        CHECK(read_kept(nothing).metadata.is_null());
    }
    const std::string item = R"({"role":"user","content":"a"})";
    CHECK(read_kept_items(R"({"include":[],"items":[)" + item + "]}").messages.size() == 1);
    CHECK(read_kept_metadata(R"({"metadata":{"a":"b"}})").metadata["a"] == "b");
    CHECK(refusal(read_kept, R"({"items":7})").starts_with("items invalid_type"));
    CHECK(refusal(read_kept, R"({"metadata":{"a":1}})").starts_with("metadata.a invalid_type"));
    CHECK(refusal(read_kept, R"({"name":"a"})").starts_with("name unknown_parameter"));
    CHECK(refusal(read_kept_items, "{}").starts_with("items missing_required_parameter"));
    CHECK(refusal(read_kept_items, R"({"items":[]})").starts_with("items invalid_value"));
    CHECK(refusal(read_kept_metadata, R"({"items":[]})").starts_with("items unknown_parameter"));
    CHECK(refusal(read_kept_metadata, "{}").starts_with("metadata missing_required_parameter"));
    std::string many;
    for (int i = 0; i < 17; ++i) {
        many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":"")";
    }
    CHECK(refusal(read_kept, R"({"metadata":{)" + many + "}}").starts_with("metadata "));
    const std::string text(2049, 'a');
    CHECK(refusal(read_kept, R"({"metadata":{"a":")" + text + "\"}}").starts_with("metadata "));
}

TEST_CASE("continued: turns follow those that are stored; the rest is the new request's") {
    const Json stored =
        read_response(R"({"instructions":"old","reasoning":{"effort":"high"},"input":[)"
                      R"({"role":"system","content":"stays"},{"role":"user","content":"a"},)"
                      R"({"type":"function_call","call_id":"call_1","name":"f","arguments":"{}"})"
                      "]}")
            .conversation;
    const Json after =
        read_response(std::string(R"({"previous_response_id":"resp_1","instructions":"new",)"
                                  R"("input":[{"type":"function_call_output",)"
                                  R"("call_id":"call_1","output":"one"}],)") +
                      kFlatTool + "}")
            .conversation;
    CHECK(serve::api::continued(stored, after).dump() ==
          R"({"messages":[{"role":"system","content":"new","instructions":true},)"
          R"({"role":"system","content":"stays"},{"role":"user","content":"a"},)"
          R"({"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function",)"
          R"("function":{"name":"f","arguments":{}}}]},)"
          R"({"role":"tool","tool_call_id":"1","name":"f","content":"one"}],)"
          R"("tools":[{"type":"function","function":{"name":"f",)"
          R"("parameters":{"type":"object"}}}]})");
    const Json without = read_response(R"({"previous_response_id":"resp_1"})").conversation;
    CHECK(serve::api::continued(stored, without)["messages"][0]["content"] == "stays");
}
