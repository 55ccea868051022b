// The forms of calls; see tool_calls.h. A template is asked: it renders a call whose parts are
// words that no template has.
#include "tools/serve/engine/tool_calls.h"

#include <algorithm>

#include "tools/cli/terminal.h"

namespace serve {

namespace {

using api::Json;

constexpr size_t kNowhere = std::string::npos;
constexpr char kUserWord[] = "Quser1x", kNameWord[] = "Qname2x", kKeyWord[] = "Qkey3x",
               kValueWord[] = "Qvalue4x", kThoughtWord[] = "Qthought5x";
constexpr char kThink[] = "<think>", kThinkEnd[] = "</think>", kCall[] = "<tool_call>",
               kCallEnd[] = "</tool_call>",
               kParameter[] = "<parameter=", kParameterEnd[] = "</parameter>";

[[noreturn]] void refuse_choice(const std::string &why) {
    throw api::Refused{400, "unsupported_value", "a call cannot be forced here: " + why,
                       "tool_choice"};
}

// The texts around a call's name and arguments.
struct CallForm {
    bool tagged = false;                // each argument in tags of its own; else one JSON object
    bool several = false;               // a reply may have more than one
    std::string head, middle, tail;     // before the name, after it, at the end
    std::string key_begin, value_begin; // tagged: before an argument's name, after it,
    std::string value_end;              // and after its value
    enum class Thoughts { none, may, open } thoughts = Thoughts::none;
};

std::string rendered(const ServedModel &model, const Json &conversation, uint32_t flags) {
    const std::string text = conversation.dump();
    try {
        return command::fetch_text(
            [&](char *to, size_t capacity, size_t *length, stasis_error *error) {
                return stasis_model_render_chat(model.model(), text.data(), text.size(), flags, to,
                                                capacity, length, error);
            },
            "the chat template");
    } catch (const command::Failure &failure) {
        refuse_choice("the model's chat template renders no call: " + std::string(failure.what()));
    }
}

// The conversation's tools and switches, with these messages.
Json probe_of(const Json &conversation, Json messages) {
    Json probe = conversation;
    probe["messages"] = std::move(messages);
    return probe;
}

Json user_turn() {
    return Json{{"role", "user"}, {"content", kUserWord}};
}

// Returns what a template writes of a call behind the user's text.
std::string written_call(const ServedModel &model, const Json &conversation) {
    Json function = {{"name", kNameWord}};
    function["arguments"][kKeyWord] = kValueWord;
    Json turn = {{"role", "assistant"}, {"content", ""}, {"reasoning_content", kThoughtWord}};
    turn["tool_calls"] = Json::array(
        {Json{{"id", "abcde1234"}, {"type", "function"}, {"function", std::move(function)}}});
    const std::string text =
        rendered(model, probe_of(conversation, Json::array({user_turn(), std::move(turn)})), 0);
    const size_t user = text.rfind(kUserWord);
    return user == kNowhere ? "" : text.substr(user + std::string(kUserWord).size());
}

// Where the words of a call are, and where it begins.
struct Places {
    size_t begin, name, key, value;
};

Places places_in(const std::string &text) {
    Places at{};
    at.name = text.find(kNameWord);
    at.key = at.name == kNowhere ? kNowhere : text.find(kKeyWord, at.name);
    at.value = at.key == kNowhere ? kNowhere : text.find(kValueWord, at.key);
    for (const char *marker : {"<|channel|>", "<|tool_call>", "[TOOL_CALLS]"}) {
        if (text.find(marker) != kNowhere) {
            refuse_choice("the model writes calls with '" + std::string(marker) +
                          "', a special token, which no constraint can say");
        }
    }
    at.begin = at.value == kNowhere ? kNowhere : text.rfind(kCall, at.name);
    if (at.value != kNowhere && at.begin == kNowhere &&
        text.find("<|start_header_id|>") != kNowhere &&
        text.substr(at.name, at.key - at.name).find("\"parameters\"") != kNowhere) {
        at.begin = text.rfind('{', at.name); // Llama 3: the whole reply is the call
    }
    if (at.begin == kNowhere) {
        refuse_choice("the form in which the model writes calls is not known");
    }
    return at;
}

CallForm tagged_form(const std::string &text, const Places &at) {
    CallForm form;
    form.tagged = form.several = true;
    const size_t named = at.name + std::string(kNameWord).size();
    const size_t parameter = text.find(kParameter, named);
    const size_t end = text.find(kParameterEnd, at.value);
    const size_t function = text.find("</function>", at.value);
    const size_t close = text.find(kCallEnd, at.value);
    if (parameter == kNowhere || parameter > at.key || end == kNowhere || function < end ||
        close == kNowhere || close < function) {
        refuse_choice("the form in which the model writes calls is not known");
    }
    form.head = text.substr(at.begin, at.name - at.begin);
    form.middle = text.substr(named, parameter - named);
    form.key_begin = text.substr(parameter, at.key - parameter);
    const size_t keyed = at.key + std::string(kKeyWord).size();
    form.value_begin = text.substr(keyed, at.value - keyed);
    const size_t valued = at.value + std::string(kValueWord).size();
    form.value_end = text.substr(valued, function - valued);
    form.tail = text.substr(function, close + std::string(kCallEnd).size() - function);
    return form;
}

CallForm object_form(const std::string &text, const Places &at) {
    CallForm form;
    const bool marked = text.compare(at.begin, std::string(kCall).size(), kCall) == 0;
    const size_t arguments = text.rfind('{', at.key), end = text.find('}', at.value);
    const size_t close = end == kNowhere ? kNowhere : text.find(marked ? kCallEnd : "}", end + 1);
    const bool known = arguments > at.name && close != kNowhere && text[arguments - 1] != '"' &&
                       text[at.name - 1] == '"' && (marked || close == end + 1);
    if (!known) {
        refuse_choice("the form in which the model writes calls is not known");
    }
    form.several = marked;
    form.head = text.substr(at.begin, at.name - at.begin);
    const size_t named = at.name + std::string(kNameWord).size();
    form.middle = text.substr(named, arguments - named);
    form.tail = text.substr(end + 1, close + std::string(marked ? kCallEnd : "}").size() - end - 1);
    return form;
}

CallForm form_of(const ServedModel &model, const Json &conversation) {
    const std::string text = written_call(model, conversation);
    const Places at = places_in(text);
    const std::string before_name = "<function=";
    const bool tagged =
        at.name >= before_name.size() &&
        text.compare(at.name - before_name.size(), before_name.size(), before_name) == 0;
    CallForm form = tagged ? tagged_form(text, at) : object_form(text, at);
    if (!form.several) {
        return form; // nothing stands before such a call
    }
    const std::string prompt =
        rendered(model, probe_of(conversation, Json::array({user_turn()})), STASIS_CHAT_REPLY);
    const size_t user = prompt.rfind(kUserWord), opened = prompt.rfind(kThink);
    const size_t thought = text.find(kThoughtWord);
    if (opened != kNowhere && user != kNowhere && opened > user) {
        form.thoughts = prompt.find(kThinkEnd, opened) == kNowhere ? CallForm::Thoughts::open
                                                                   : CallForm::Thoughts::none;
    } else if (thought < at.begin && text.find(kThink) < thought) {
        form.thoughts = CallForm::Thoughts::may;
    }
    return form;
}

// A literal of a grammar.
std::string quoted(const std::string &text) {
    std::string literal = "\"";
    for (const char c : text) {
        constexpr char kDigits[] = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            literal += {'\\', c};
        } else if (byte < 0x20 || byte == 0x7f) {
            literal += {'\\', 'x', kDigits[byte / 16], kDigits[byte % 16]};
        } else {
            literal += c;
        }
    }
    return literal + "\"";
}

// Any text without the marker, whose first character is '<' and comes once in it; a marker must
// follow. After each '<' a character must part from the marker, or another '<' come.
std::string without(const std::string &marker) {
    std::string parts; // from the last character of the marker to its second
    for (size_t i = marker.size(); i-- > 1;) {
        const std::string here = {marker[i]};
        const std::string further = parts.empty() ? "" : " | \"" + here + "\" " + parts;
        parts = "( \"\" | [^<" + here + "] [^<]*" + further + " )";
    }
    return "[^<]* (\"<\" " + parts + ")*";
}

// A schema's member is a schema of its own then: what it refers to comes along.
void require_definitions(const Json &schema) {
    if (schema.is_object() && schema.contains("$ref")) {
        const Json &to = schema["$ref"];
        const std::string text = to.is_string() ? to.get<std::string>() : "";
        if (!text.starts_with("#/$defs/") && !text.starts_with("#/definitions/")) {
            refuse_choice("the model writes each argument by itself, and '" + text +
                          "' refers to what holds it");
        }
    }
    for (const Json &each : schema.is_structured() ? schema : Json::array()) {
        require_definitions(each);
    }
}

// Returns what may stand between an argument's tags.
std::string value_part(const Json &parameters, const std::string &key, const Json &schema) {
    const bool text = schema.is_object() && schema.value("type", Json()) == "string";
    if (!text) {
        Json whole = schema.is_object() ? schema : Json::object();
        require_definitions(whole);
        for (const char *name : {"$defs", "definitions"}) {
            if (parameters.contains(name) && !whole.contains(name)) {
                whole[name] = parameters[name];
            }
        }
        return "%json " + whole.dump();
    }
    for (const char *name :
         {"minLength", "maxLength", "pattern", "format", "$ref", "allOf", "anyOf", "oneOf"}) {
        if (schema.contains(name)) {
            refuse_choice("the model writes texts without quotes, and the argument '" + key +
                          "' has '" + name + "'");
        }
    }
    Json values = schema.value("enum", Json::array());
    if (schema.contains("const")) {
        values = Json::array({schema["const"]});
    }
    std::string choices;
    for (const Json &value : values) {
        if (value.is_string()) {
            choices += (choices.empty() ? "" : " | ") + quoted(value.get<std::string>());
        }
    }
    return choices.empty() ? "text" : "(" + choices + ")";
}

std::string tagged_arguments(const CallForm &form, const Json &parameters) {
    const Json properties = parameters.value("properties", Json::object());
    const Json required = parameters.value("required", Json::array());
    const auto argument = [&](const std::string &key, const Json &schema) {
        if (key.find('>') != kNowhere) {
            refuse_choice("the argument '" + key + "' has a '>' in its name");
        }
        return "(" + quoted(form.key_begin + key + form.value_begin) + " " +
               value_part(parameters, key, schema) + " " + quoted(form.value_end) + ")";
    };
    std::string all;
    for (const auto &[key, schema] : properties.items()) {
        const bool needed = std::find(required.begin(), required.end(), key) != required.end();
        all += " " + argument(key, schema) + (needed ? "" : "?");
    }
    for (const Json &key : required) {
        if (key.is_string() && !properties.contains(key.get<std::string>())) {
            all += " " + argument(key, Json::object());
        }
    }
    return all;
}

std::string call_of(const CallForm &form, const Json &function) {
    const std::string name = function.at("name");
    Json parameters = function.at("parameters");
    if (!parameters.contains("type")) {
        parameters["type"] = "object";
    }
    if (parameters["type"] != "object") {
        refuse_choice("the parameters of '" + name + "' are no object");
    }
    if (form.tagged) {
        if (name.find('>') != kNowhere) {
            refuse_choice("the tool '" + name + "' has a '>' in its name");
        }
        return quoted(form.head + name + form.middle) + tagged_arguments(form, parameters) + " " +
               quoted(form.tail);
    }
    const std::string spelled = Json(name).dump();
    return quoted(form.head + spelled.substr(1, spelled.size() - 2) + form.middle) + " %json " +
           parameters.dump() + " " + quoted(form.tail);
}

} // namespace

api::Form forced_calls(const ServedModel &model, const Json &conversation, const std::string &name,
                       bool several) {
    const CallForm form = form_of(model, conversation);
    std::string calls;
    for (const Json &tool : conversation.at("tools")) {
        const Json &function = tool.at("function");
        if (name.empty() || function.at("name") == name) {
            calls += (calls.empty() ? "" : " | ") + call_of(form, function);
        }
    }
    std::string root = "call";
    if (several && name.empty() && form.several) {
        root += " (\"\\n\" call)*";
    }
    const std::string thought = "thought " + quoted(kThinkEnd) + " [ \\n]{0,4} ";
    if (form.thoughts == CallForm::Thoughts::open) {
        root = thought + root;
    } else if (form.thoughts == CallForm::Thoughts::may) {
        root = "(" + quoted(kThink) + " " + thought + ")? " + root;
    }
    return {STASIS_CONSTRAINT_GRAMMAR, "root ::= " + root + "\ncall ::= " + calls +
                                           "\nthought ::= " + without(kThinkEnd) +
                                           "\ntext ::= " + without(kParameterEnd) + "\n"};
}

} // namespace serve
