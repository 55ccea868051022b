// Reads replies of each family; see reply.h. Each style cuts the text into thoughts, content and
// calls from the front; what has not ended is the tail.
#include "runtime/text/reply.h"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <utility>

#include "format/state/error.h"

namespace stasis {

namespace {

using jinja::Dict;
using jinja::List;
using jinja::strip;
using jinja::Value;

constexpr std::string_view kBlanks = " \t\r\n";
constexpr size_t kNone = std::string_view::npos;

size_t skip_blanks(std::string_view text, size_t at) {
    return std::min(text.find_first_not_of(kBlanks, at), text.size());
}

// Returns the text without an end that may become one of the markers.
std::string_view settled(std::string_view text, std::initializer_list<std::string_view> markers) {
    size_t held = 0;
    for (const std::string_view marker : markers) {
        for (size_t size = std::min(text.size(), marker.size()); size > held; --size) {
            held = text.ends_with(marker.substr(0, size)) ? size : held;
        }
    }
    return text.substr(0, text.size() - held);
}

std::optional<Value> read_json(std::string_view text) {
    try {
        return jinja::from_json(text, "a call");
    } catch (const Error &error) {
        if (error.status() != Status::invalid_argument && error.status() != Status::unsupported) {
            throw;
        }
        return std::nullopt;
    }
}

const Value *member(const Value &value, std::string_view name) {
    return value.dict() != nullptr ? value.dict()->find(name) : nullptr;
}

struct Reading {
    const ReplyFormat &format;
    std::string_view text; // what is left
    bool complete;
    const Value &tools;
    std::string thought, content;
    bool thought_first = false; // blanks at the begin of the content are the thought's
    List calls;

    // A thought begins.
    void think() { thought_first = thought_first || strip(content, true, true).empty(); }
    void add_call(std::string_view name, Value arguments, const Value *id = nullptr) {
        Dict call;
        if (id != nullptr) {
            call.emplace_back("id", *id);
        }
        call.emplace_back("type", Value("function"));
        call.emplace_back("function", jinja::make_dict({{"name", Value(std::string(name))},
                                                        {"arguments", std::move(arguments)}}));
        calls.push_back(jinja::make_dict(std::move(call)));
    }
    // Adds {"name": ..., KEY: ...}; returns false if it is not that.
    bool add_object(const Value &object, const char *key) {
        const Value *name = member(object, "name"), *arguments = member(object, key);
        if (name == nullptr || name->text() == nullptr || name->text()->empty() ||
            arguments == nullptr || arguments->dict() == nullptr) {
            return false;
        }
        add_call(*name->text(), *arguments, member(object, "id"));
        return true;
    }
};

// A call at the front of the text, behind its opening marker.
enum class Found { whole, unfinished, none };
struct Call {
    Found found;
    size_t end = 0; // of the text that it takes
};

Call unfinished_at(size_t end, std::string_view text) {
    return {end >= text.size() ? Found::unfinished : Found::none};
}

// Whether `marker` is at `at`, or may still come there.
Call closing(std::string_view text, size_t at, std::string_view marker) {
    at = skip_blanks(text, at);
    if (text.substr(at).starts_with(marker)) {
        return {Found::whole, at + marker.size()};
    }
    return {marker.starts_with(text.substr(at)) ? Found::unfinished : Found::none};
}

Call json_call(Reading &out, std::string_view text) {
    const size_t begin = skip_blanks(text, 0);
    if (begin == text.size() || text[begin] != '{') {
        return unfinished_at(begin, text);
    }
    const size_t end = json_end(text, begin);
    if (end == kNone) {
        return {Found::unfinished};
    }
    const Call close = closing(text, end, "</tool_call>");
    if (close.found != Found::whole) {
        return close;
    }
    const auto object = read_json(text.substr(begin, end - begin));
    return object && out.add_object(*object, "arguments") ? close : Call{Found::none};
}

// Returns the type that the definition of `function` gives its parameter; empty if it gives none.
std::string parameter_type(const Value &tools, std::string_view function, const std::string &name) {
    for (const Value &tool : tools.list() != nullptr ? tools.list()->items : List()) {
        const Value *inner = member(tool, "function");
        const Value &definition = inner != nullptr ? *inner : tool;
        const Value *called = member(definition, "name");
        if (called == nullptr || called->text() == nullptr || *called->text() != function) {
            continue;
        }
        const Value *at = &definition;
        for (const std::string_view key :
             {std::string_view("parameters"), std::string_view("properties"),
              std::string_view(name), std::string_view("type")}) {
            at = at != nullptr ? member(*at, key) : nullptr;
        }
        return at != nullptr && at->text() != nullptr ? *at->text() : "";
    }
    return "";
}

Value parameter_value(const Reading &out, std::string_view function, const std::string &name,
                      std::string_view text) {
    if (parameter_type(out.tools, function, name) != "string") {
        if (const auto value = read_json(text)) {
            return *value;
        }
        if (text == "True" || text == "False" || text == "None") { // as the template prints them
            return text == "None" ? Value(Value::Data(jinja::None{}))
                                  : Value(Value::Data(text == "True"));
        }
    }
    return Value(std::string(text));
}

// Returns the end of a parameter's value: "</parameter>" that the next parameter or the function's
// end follows. npos if it has not come.
size_t parameter_end(std::string_view text, size_t at) {
    constexpr std::string_view kEnd = "</parameter>";
    while ((at = text.find(kEnd, at)) != kNone) {
        const std::string_view rest = text.substr(skip_blanks(text, at + kEnd.size()));
        if (rest.starts_with("<parameter=") || rest.starts_with("</function>")) {
            return at;
        }
        ++at;
    }
    return kNone;
}

Call tagged_call(Reading &out, std::string_view text) {
    const Call open = closing(text, 0, "<function=");
    const size_t named = open.found == Found::whole ? text.find('>', open.end) : kNone;
    if (named == kNone) {
        return open.found == Found::none ? open : Call{Found::unfinished};
    }
    const std::string_view name = text.substr(open.end, named - open.end);
    Dict arguments;
    size_t at = named + 1;
    while (true) {
        const Call end = closing(text, at, "</function>");
        if (end.found == Found::whole) {
            const Call close = closing(text, end.end, "</tool_call>");
            if (close.found == Found::whole) {
                out.add_call(name, jinja::make_dict(std::move(arguments)));
            }
            return close;
        }
        const Call parameter = closing(text, at, "<parameter=");
        if (parameter.found != Found::whole) {
            const bool may = end.found == Found::unfinished || parameter.found == Found::unfinished;
            return {may ? Found::unfinished : Found::none};
        }
        const size_t key = text.find('>', parameter.end);
        const size_t last = key != kNone ? parameter_end(text, key) : kNone;
        if (last == kNone) {
            return {Found::unfinished};
        }
        const std::string argument(text.substr(parameter.end, key - parameter.end));
        std::string_view value = text.substr(key + 1, last - key - 1);
        value.remove_prefix(value.starts_with('\n') ? 1 : 0);
        value.remove_suffix(value.ends_with('\n') ? 1 : 0);
        std::erase_if(arguments, [&](const auto &item) { return item.first == argument; });
        arguments.emplace_back(argument, parameter_value(out, name, argument, value));
        at = last + std::string_view("</parameter>").size();
    }
}

Call gemma_call(Reading &out, std::string_view text) {
    constexpr std::string_view kClose = "<tool_call|>", kQuote = "<|\"|>";
    // The closing marker counts outside strings only.
    size_t end = 0, close = text.find(kClose);
    for (bool quoted = false;;) {
        const size_t quote = text.find(kQuote, end);
        close = close < end ? text.find(kClose, end) : close;
        if (!quoted && close < quote) {
            end = close;
            break;
        }
        if (quote == kNone) {
            return {Found::unfinished};
        }
        end = quote + kQuote.size();
        quoted = !quoted;
    }
    const std::string_view body = strip(text.substr(0, end), true, true);
    const size_t brace = body.find('{');
    if (!body.starts_with("call:") || brace == kNone || brace == 5) {
        return {Found::none};
    }
    Value arguments = read_gemma_arguments(body.substr(brace));
    if (arguments.dict() == nullptr) {
        return {Found::none};
    }
    out.add_call(body.substr(5, brace - 5), std::move(arguments));
    return {Found::whole, end + kClose.size()};
}

Call mistral_call(Reading &out, std::string_view text) {
    const size_t begin = skip_blanks(text, 0);
    const bool list = begin < text.size() && text[begin] == '[';
    const size_t marker = list ? begin : text.find("[ARGS]", begin);
    const size_t at = list || marker == kNone ? begin : skip_blanks(text, marker + 6);
    if (begin == text.size() || marker == kNone || at == text.size()) {
        return {Found::unfinished};
    }
    const size_t end = text[at] == '[' || text[at] == '{' ? json_end(text, at) : 0;
    if (end == kNone || end == 0) {
        return {end == 0 ? Found::none : Found::unfinished};
    }
    auto value = read_json(text.substr(at, end - at));
    if (list && value && value->list() != nullptr && !value->list()->items.empty()) {
        const size_t before = out.calls.size();
        for (const Value &object : value->list()->items) {
            if (!out.add_object(object, "arguments")) {
                out.calls.resize(before);
                return {Found::none};
            }
        }
        return {Found::whole, end};
    }
    // name[ARGS]{...}, with name[CALL_ID]id[ARGS]{...} in between versions.
    const std::string_view head = text.substr(begin, marker - begin);
    const size_t id_at = head.find("[CALL_ID]");
    const std::string_view name = strip(head.substr(0, id_at), true, true);
    if (list || name.empty() || !value || value->dict() == nullptr) {
        return {Found::none};
    }
    const Value id(std::string(id_at != kNone ? head.substr(id_at + 9) : ""));
    out.add_call(name, std::move(*value), id_at != kNone ? &id : nullptr);
    return {Found::whole, end};
}

// Texts in the form of a call that are none, behind which all is content: each may be read to the
// end of the reply before it is known, and a reply may consist of them.
constexpr size_t kNoCallsMost = 64;

// Thoughts and calls between markers: every style but `whole` and `harmony`.
void read_marked(Reading &out, bool thinking, std::string_view call_open,
                 Call (*read_call)(Reading &, std::string_view)) {
    const std::string_view open = out.format.think_open, close = out.format.think_close;
    for (size_t no_calls = 0;;) {
        if (thinking) {
            out.think();
            const size_t end = out.text.find(close);
            out.thought += end != kNone   ? out.text.substr(0, end)
                           : out.complete ? out.text
                                          : settled(out.text, {close});
            if (end == kNone) {
                return;
            }
            out.text.remove_prefix(end + close.size());
            thinking = false;
        }
        const size_t thought = open.empty() ? kNone : out.text.find(open);
        const bool reads = !call_open.empty() && no_calls < kNoCallsMost;
        const size_t call = reads ? out.text.find(call_open) : kNone;
        const size_t marker = std::min(thought, call);
        if (marker == kNone) {
            out.content +=
                out.complete ? out.text : settled(out.text, {open, reads ? call_open : ""});
            return;
        }
        out.content += out.text.substr(0, marker);
        if (thought < call) {
            out.text.remove_prefix(marker + open.size());
            thinking = true;
            continue;
        }
        const std::string_view body = out.text.substr(marker + call_open.size());
        const Call found = read_call(out, body);
        if (found.found == Found::unfinished) { // of a complete reply: it was cut inside the call
            out.content += out.complete ? out.text.substr(marker) : "";
            return;
        }
        // What is no call stays in the content, from its marker on.
        const bool whole = found.found == Found::whole;
        no_calls += whole ? 0 : 1;
        out.content += whole ? "" : call_open;
        out.text = whole ? body.substr(found.end) : body;
    }
}

void read_whole(Reading &out) {
    std::string_view text = strip(out.text, true, false);
    constexpr std::string_view kTag = "<|python_tag|>";
    const bool tagged = text.starts_with(kTag);
    text.remove_prefix(tagged ? kTag.size() : 0);
    text = strip(text, true, false);
    const bool may = text.starts_with('{') || text.empty() || kTag.starts_with(text);
    if (may && !out.complete) {
        return;
    }
    const size_t end = text.starts_with('{') ? json_end(text, 0) : kNone;
    const bool alone = end != kNone && skip_blanks(text, end) == text.size();
    const auto object = alone ? read_json(text.substr(0, end)) : std::nullopt;
    if (!object ||
        (!out.add_object(*object, "parameters") && !out.add_object(*object, "arguments"))) {
        out.content = out.text;
    }
}

// One message after another: header<|message|>text<|end|>, the first without its <|start|>.
void read_harmony(Reading &out) {
    constexpr std::string_view kStart = "<|start|>", kMessage = "<|message|>";
    while (!out.text.empty()) {
        const size_t begin = out.text.find(kMessage);
        if (begin == kNone) { // the header has not ended
            out.content += out.complete ? out.text : "";
            return;
        }
        std::string_view header = out.text.substr(0, begin);
        const std::string_view rest = out.text.substr(begin + kMessage.size());
        size_t end = rest.size(), next = rest.size();
        for (const std::string_view marker :
             {std::string_view("<|end|>"), std::string_view("<|call|>"),
              std::string_view("<|return|>"), kStart}) {
            const size_t at = rest.find(marker);
            if (at < end) {
                end = at;
                next = at + (marker == kStart ? 0 : marker.size());
            }
        }
        const bool ended = end < rest.size() || out.complete;
        const std::string_view text =
            ended ? rest.substr(0, end)
                  : settled(rest, {"<|end|>", "<|call|>", "<|return|>", kStart});
        const size_t to = header.find("to=functions.");
        if (to != kNone) {
            if (!ended) {
                return;
            }
            header.remove_prefix(to + 13);
            const std::string_view name = header.substr(0, header.find_first_of(" <\n"));
            auto arguments = read_json(text);
            if (!name.empty() && arguments && arguments->dict() != nullptr) {
                out.add_call(name, std::move(*arguments));
            } else {
                out.content += out.text.substr(0, begin + kMessage.size());
                out.content += text;
            }
        } else if (header.find("<|channel|>analysis") != kNone) {
            out.think();
            out.thought += text;
        } else {
            out.content += text;
        }
        out.text = rest.substr(next);
    }
}

} // namespace

size_t json_end(std::string_view text, size_t at) {
    constexpr size_t kNestMax = 64; // bounds the time that calls inside one another take
    size_t open = 0;
    for (bool quoted = false; at < text.size(); ++at) {
        const char c = text[at];
        if (quoted) {
            at += c == '\\' ? 1 : 0;
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            if (++open > kNestMax) {
                return kNone;
            }
        } else if ((c == '}' || c == ']') && --open == 0) {
            return at + 1;
        }
    }
    return kNone;
}

ReplyFormat reply_format(std::string_view jinja) {
    const auto has = [&](std::string_view marker) { return jinja.find(marker) != kNone; };
    ReplyFormat format;
    if (has("<|channel|>") && has("<|message|>")) {
        format.calls = CallStyle::harmony;
    } else if (has("<|tool_call>")) {
        format = {CallStyle::gemma, "<|channel>thought\n", "<channel|>"};
    } else if (has("[TOOL_CALLS]")) {
        format.calls = CallStyle::mistral;
    } else if (has("<tool_call>")) {
        format.calls = has("<function=") ? CallStyle::tagged : CallStyle::json;
    } else if (has("<|python_tag|>") || (has("<|start_header_id|>") && has("\"parameters\""))) {
        format.calls = CallStyle::whole;
    }
    if (has("[THINK]")) {
        format.think_open = "[THINK]";
        format.think_close = "[/THINK]";
    } else if (has("</think>")) {
        format.think_open = "<think>";
        format.think_close = "</think>";
    }
    return format;
}

Value parse_reply(const ReplyFormat &format, std::string_view prompt, std::string_view text,
                  bool complete, const Value &tools) {
    Reading out{format, text, complete, tools, "", "", false, {}};
    const std::string &open = format.think_open;
    const size_t opened = open.empty() ? kNone : prompt.rfind(open);
    const bool thinking =
        opened != kNone && prompt.find(format.think_close, opened) == std::string_view::npos;
    switch (format.calls) {
    case CallStyle::none:
        read_marked(out, thinking, "", nullptr);
        break;
    case CallStyle::json:
        read_marked(out, thinking, "<tool_call>", json_call);
        break;
    case CallStyle::tagged:
        read_marked(out, thinking, "<tool_call>", tagged_call);
        break;
    case CallStyle::gemma:
        read_marked(out, thinking, "<|tool_call>", gemma_call);
        break;
    case CallStyle::mistral:
        read_marked(out, thinking, "[TOOL_CALLS]", mistral_call);
        break;
    case CallStyle::whole:
        read_whole(out);
        break;
    case CallStyle::harmony:
        read_harmony(out);
        break;
    }
    // Blanks beside a marker belong to the format; until the end of the reply it is open whether
    // one follows.
    const std::string_view content =
        strip(out.content, out.thought_first, !complete || !out.calls.empty());
    const std::string_view thought = strip(out.thought, true, true);
    Dict message = {{"role", Value("assistant")}};
    if (!thought.empty()) {
        message.emplace_back("reasoning_content", Value(std::string(thought)));
    }
    message.emplace_back("content", Value(std::string(content)));
    if (!out.calls.empty()) {
        message.emplace_back("tool_calls", jinja::make_list(std::move(out.calls)));
    }
    return jinja::make_dict(std::move(message));
}

} // namespace stasis
