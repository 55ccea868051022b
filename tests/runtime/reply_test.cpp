// Replies read as messages: each family's form, every beginning of it, and what is no call.
#include "runtime/text/reply.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "format/state/error.h"
#include "runtime/text/chat.h"
#include "tests/data_files.h"
#include "tests/places.h"

using namespace stasis;
using Ordered = nlohmann::ordered_json;

namespace {

constexpr const char *kTools = R"([{"type": "function", "function": {"name": "f", "parameters":
    {"type": "object", "properties": {"place": {"type": "string"}, "n": {"type": "integer"},
     "o": {"type": "object"}}}}}])";

ReplyFormat format_of(CallStyle calls, const char *open = "", const char *close = "") {
    return {calls, open, close};
}

Ordered parsed(const ReplyFormat &format, std::string_view text, bool complete = true,
               std::string_view prompt = "", bool with_tools = true) {
    const jinja::Value tools = with_tools ? jinja::from_json(kTools, "tools") : jinja::Value();
    jinja::Budget budget{SIZE_MAX, false};
    return Ordered::parse(
        jinja::to_json(parse_reply(format, prompt, text, complete, tools), {}, budget));
}

std::string member(const Ordered &message, const char *name) {
    return message.contains(name) ? message.at(name).get<std::string>() : "";
}

// "f(arguments)..." of the calls, "|", the content, "|", the thought.
std::string shown(const Ordered &message) {
    std::string out;
    for (const Ordered &call : message.value("tool_calls", Ordered::array())) {
        out += call.value("id", "") + call["function"]["name"].get<std::string>() +
               call["function"]["arguments"].dump();
    }
    return out + "|" + member(message, "content") + "|" + member(message, "reasoning_content");
}

struct Reply {
    ReplyFormat format;
    const char *prompt, *text, *message;
};

const Reply kReplies[] = {
    {format_of(CallStyle::json, "<think>", "</think>"), "",
     "<think>\nhm <b>\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
     "{\"a\": \"</tool_call>\", \"b\": [1, 2.5]}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", "
     "\"arguments\": {}}\n</tool_call>",
     "f{\"a\":\"</tool_call>\",\"b\":[1,2.5]}g{}|I look.|hm <b>"},
    {format_of(CallStyle::json, "<think>", "</think>"), "", "  Just text.\n", "|  Just text.\n|"},
    {format_of(CallStyle::json, "<think>", "</think>"), "", " So.<think>hm</think> Yes.",
     "| So. Yes.|hm"},
    {format_of(CallStyle::json, "<think>", "</think>"), "", "\n<think></think>\n\nYes.", "|Yes.|"},
    {format_of(CallStyle::harmony), "<|start|>assistant",
     "<|channel|>final<|message|> So.<|end|><|start|>assistant<|channel|>analysis<|message|>hm",
     "| So.|hm"},
    {format_of(CallStyle::tagged, "<think>", "</think>"), "<|im_start|>assistant\n<think>\n",
     "why\n</think>\n\n<tool_call>\n<function=f>\n<parameter=place>\n12\n</parameter>\n"
     "<parameter=n>\n12\n</parameter>\n<parameter=o>\n{\"x\": \"</parameter> y\"}\n</parameter>\n"
     "</function>\n</tool_call>",
     "f{\"place\":\"12\",\"n\":12,\"o\":{\"x\":\"</parameter> y\"}}||why"},
    {format_of(CallStyle::tagged, "<think>", "</think>"),
     "<|im_start|>assistant\n<think>\n\n</think>\n\n", "Hello.", "|Hello.|"},
    {format_of(CallStyle::whole), "", "{\"name\": \"f\", \"parameters\": {\"a\": {\"b\": null}}}",
     "f{\"a\":{\"b\":null}}||"},
    {format_of(CallStyle::whole), "", "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}",
     "f{}||"},
    {format_of(CallStyle::whole), "", "The weather is fine.", "|The weather is fine.|"},
    {format_of(CallStyle::mistral), "",
     "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": \"]\"}, \"id\": \"abcdefghi\"}]",
     "abcdefghif{\"a\":\"]\"}||"},
    {format_of(CallStyle::mistral, "[THINK]", "[/THINK]"), "",
     "[THINK]so[/THINK]Yes.[TOOL_CALLS]f[ARGS]{\"a\": 1}[TOOL_CALLS]g[CALL_ID]x1[ARGS]{}",
     "f{\"a\":1}x1g{}|Yes.|so"},
    {format_of(CallStyle::gemma, "<|channel>thought\n", "<channel|>"), "",
     "<|channel>thought\nhm\n<channel|>Ok.<|tool_call>call:f{a:<|\"|>x}<tool_call|>,\"y\"<|\"|>,"
     "b:[1,-2.5,true,null],c:{d:<|\"|><|\"|>}}<tool_call|><|tool_call>call:g{}<tool_call|>",
     "f{\"a\":\"x}<tool_call|>,\\\"y\\\"\",\"b\":[1,-2.5,true,null],\"c\":{\"d\":\"\"}}g{}|Ok.|hm"},
    {format_of(CallStyle::harmony), "<|start|>assistant",
     "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant to=functions.f<|channel|>"
     "commentary json<|message|>{\"a\": \"<|end\"}",
     "f{\"a\":\"<|end\"}||I think."},
    {format_of(CallStyle::harmony), "<|start|>assistant",
     "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant<|channel|>commentary "
     "to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
     "f{\"a\":1}||I think."},
    {format_of(CallStyle::harmony), "<|start|>assistant", "<|channel|>final<|message|>Hello.",
     "|Hello.|"},
    {format_of(CallStyle::none), "", "<tool_call>{}</tool_call>", "|<tool_call>{}</tool_call>|"},
};

} // namespace

TEST_CASE("parse_reply: each family's calls, thoughts and content") {
    for (const Reply &reply : kReplies) {
        const std::string text = reply.text;
        CAPTURE(text);
        CHECK(shown(parsed(reply.format, text, true, reply.prompt)) == reply.message);
    }
}

TEST_CASE("parse_reply: no beginning of a reply is misread") {
    for (const Reply &reply : kReplies) {
        const std::string text = reply.text;
        const Ordered whole = parsed(reply.format, text, true, reply.prompt);
        const Ordered none = Ordered::array();
        const Ordered calls = whole.value("tool_calls", none);
        size_t content = 0, thought = 0, called = 0;
        for (size_t size = 0; size <= text.size(); ++size) {
            const std::string part = text.substr(0, size);
            CAPTURE(part);
            const Ordered message = parsed(reply.format, part, false, reply.prompt);
            const std::string now = member(message, "content");
            const std::string so_far = member(message, "reasoning_content");
            const Ordered some = message.value("tool_calls", none);
            CHECK(member(whole, "content").starts_with(now));
            CHECK(member(whole, "reasoning_content").starts_with(so_far));
            CHECK(now.size() >= content);
            CHECK(so_far.size() >= thought);
            REQUIRE(some.size() <= calls.size());
            CHECK(some.size() >= called);
            CHECK(std::equal(some.begin(), some.end(), calls.begin()));
            content = now.size();
            thought = so_far.size();
            called = some.size();
        }
    }
}

TEST_CASE("parse_reply: what is no call stays in the content") {
    const std::pair<CallStyle, const char *> kTexts[] = {
        {CallStyle::json, "a <tool_call>not JSON</tool_call> b"},
        {CallStyle::json, "a <tool_call>{\"name\": \"f\"}</tool_call>"},
        {CallStyle::json, "a <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": "},
        {CallStyle::tagged, "<tool_call>\n<function=f>\n<parameter=a>\n1"},
        {CallStyle::tagged, "<tool_call>{}</tool_call>"},
        {CallStyle::whole, "{\"name\": \"f\", \"parameters\": 5}"},
        {CallStyle::whole, "{\"name\": \"f\", \"parameters\": {}} and text"},
        {CallStyle::mistral, "[TOOL_CALLS][1, 2]"},
        {CallStyle::mistral, "[TOOL_CALLS]f[ARGS]5"},
        {CallStyle::gemma, "<|tool_call>call:f{a}<tool_call|>"},
        {CallStyle::gemma, "<|tool_call>f{}<tool_call|>"}};
    for (const auto &[style, source] : kTexts) {
        const std::string text = source; // (clang 14 captures no structured binding)
        CAPTURE(text);
        CHECK(shown(parsed(format_of(style), text)) == "|" + text + "|");
    }
    CHECK(shown(parsed(format_of(CallStyle::harmony),
                       "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{\"a\""))
              .find("|<|channel|>commentary") == 0);
    // Without definitions an argument that reads as JSON is JSON.
    CHECK(shown(parsed(format_of(CallStyle::tagged),
                       "<tool_call><function=f><parameter=place>12</parameter></function>"
                       "</tool_call>",
                       true, "", false)) == "f{\"place\":12}||");
}

TEST_CASE("parse_reply: hostile replies take time in proportion to their length") {
    std::string text;
    for (int i = 0; i < 20000; ++i) {
        text += i % 2 == 0 ? "<tool_call>{\"a\": [" : "[TOOL_CALLS][{";
    }
    for (const CallStyle style : {CallStyle::json, CallStyle::mistral, CallStyle::gemma,
                                  CallStyle::tagged, CallStyle::harmony, CallStyle::whole}) {
        CHECK(member(parsed(format_of(style), text), "content").size() > text.size() / 2);
    }
}

TEST_CASE("parse_reply: behind 64 texts in the form of a call that are none, all is content") {
    const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    for (const size_t none : {63U, 64U}) {
        std::string text;
        for (size_t i = 0; i < none; ++i) {
            text += "<tool_call>{}</tool_call>";
        }
        const std::string expected = none < 64 ? "f{}|" + text + "|" : "|" + text + call + "|";
        CHECK(shown(parsed(format_of(CallStyle::json), text + call)) == expected);
    }
}

TEST_CASE("parse_reply: what templates render of calls is read back") {
    const std::string folder = std::string(places::source) + "/tests/data/chat/";
    const Ordered cases = Ordered::parse(std::ifstream(folder + "cases.json"));
    size_t read = 0, without = 0;
    for (const Ordered &entry : cases.at("cases")) {
        const std::string name = entry.at("template");
        CAPTURE(name);
        if (name.starts_with("LFM2.5") || name.starts_with("HuggingFaceTB-SmolLM3")) {
            continue; // calls in the syntax of Python; no calls at all
        }
        std::ifstream file(folder + "templates/" + name + ".jinja");
        const std::string source{std::istreambuf_iterator<char>(file), {}};
        const ChatTemplate chat =
            *ChatTemplate::recognise_text(source, "<s>", "</s>", std::nullopt);
        for (const char *conversation : {"call", "nested arguments", "two calls"}) {
            const Ordered given = cases.at("conversations").at(conversation);
            const ChatInput input = read_chat(given.dump());
            std::string prompt, text;
            try {
                prompt = chat.render(input, 1, true);
                text = chat.render(input, 2, false);
            } catch (const Error &) { // this template has no such calls
                ++without;
                continue;
            }
            // Templates differ in what they put before a call that had no thought.
            const size_t same = static_cast<size_t>(
                std::mismatch(prompt.begin(), prompt.end(), text.begin(), text.end()).first -
                prompt.begin());
            std::string reply = text.substr(text.substr(0, same).ends_with("<|") ? same - 2 : same);
            for (const char *end : {"</s>", "<|im_end|>\n", "<|eot_id|>", "<turn|>\n",
                                    "<|tool_response>", "<|call|>"}) {
                reply = reply.substr(0, std::min(reply.rfind(end), reply.size()));
            }
            CAPTURE(reply);
            jinja::Budget budget{SIZE_MAX, false};
            const jinja::Value *tools = nullptr;
            for (const auto &[key, value] : input.variables) {
                tools = key == "tools" ? &value : tools;
            }
            const Ordered message = Ordered::parse(
                jinja::to_json(parse_reply(chat.replies(), "", reply, true, *tools), {}, budget));
            const Ordered &expected = given.at("messages").at(1).at("tool_calls");
            REQUIRE(message.contains("tool_calls"));
            const Ordered &calls = message.at("tool_calls");
            const nlohmann::json made = calls.at(0).at("function");
            const nlohmann::json meant = expected.at(0).at("function");
            CHECK_MESSAGE(made == meant, made.dump());
            ++read;
        }
    }
    CHECK(read == 34);
    CHECK(without == 2);
}
