// The one form of conversations.
#include "tools/serve/api/conversation.h"

#include <algorithm>
#include <map>

namespace serve::api {

namespace {

// Gives results of tools that have no name that of the call with their id, which some templates
// read.
void name_results(Json &messages) {
    std::map<std::string, std::string> names;
    for (Json &message : messages) {
        if (const auto calls = message.find("tool_calls"); calls != message.end()) {
            for (const Json &call : *calls) {
                names[call["id"].get<std::string>()] = call["function"]["name"].get<std::string>();
            }
        }
        if (message["role"] == "tool" && !message.contains("name")) {
            const auto found = names.find(message["tool_call_id"].get<std::string>());
            if (found != names.end()) {
                message = Json{{"role", "tool"},
                               {"tool_call_id", found->first},
                               {"name", found->second},
                               {"content", message["content"]}};
            }
        }
    }
}

bool is_instructions(const Json &message) {
    return message.contains("instructions");
}

} // namespace

Json text_message(const char *role, const std::string &content) {
    return Json{{"role", role}, {"content", content}};
}

Json assistant_message(const std::string &content, const std::string &thoughts,
                       const std::vector<Call> &calls) {
    Json message = text_message("assistant", content);
    if (!thoughts.empty()) {
        message["reasoning_content"] = thoughts;
    }
    for (const Call &call : calls) {
        message["tool_calls"].push_back(
            Json{{"id", call.id},
                 {"type", "function"},
                 {"function", Json{{"name", call.name}, {"arguments", call.arguments}}}});
    }
    return message;
}

Json tool_message(const std::string &id, const std::string &content) {
    return Json{{"role", "tool"}, {"tool_call_id", id}, {"content", content}};
}

std::string content_text(const Json &content, const std::string &place) {
    if (content.is_null()) {
        return "";
    }
    if (content.is_string()) {
        return content.get<std::string>();
    }
    if (!content.is_array()) {
        refuse(place, "'" + place + "' must be a string or a list of parts", "invalid_type");
    }
    std::string whole;
    for (size_t i = 0; i < content.size(); ++i) {
        Members part(content[i], place + "[" + std::to_string(i) + "]");
        const std::string type = part.needed_text("type");
        const bool text = type == "text" || type == "input_text" || type == "output_text";
        if (!text && type != "refusal") {
            refuse(part.place(),
                   "'" + part.place() + "' is of type '" + type + "'; only text is supported",
                   "unsupported_value");
        }
        whole += i == 0 ? "" : "\n";
        whole += part.needed_text(text ? "text" : "refusal");
    }
    return whole;
}

std::string bare_id(const std::string &id) {
    std::string_view bare = id;
    for (const std::string_view prefix : {"call_", "toolu_"}) {
        if (bare.starts_with(prefix)) {
            return bare_id(std::string(bare.substr(prefix.size())));
        }
    }
    return id;
}

Json read_arguments(const std::string &text, const std::string &place) {
    try {
        return parse_body(text.empty() ? "{}" : text);
    } catch (const Refused &) {
        refuse(place, "'" + place + "' must be a JSON object as text");
    }
}

Json read_tool(Members &definition, const char *schema) {
    Json function = {{"name", definition.needed_text("name")}};
    if (function["name"] == "") {
        refuse(definition.place_of("name"), "'" + definition.place_of("name") + "' is empty");
    }
    if (const auto description = definition.text("description")) {
        function["description"] = *description;
    }
    const Json *parameters = definition.find(schema);
    if (parameters != nullptr && !parameters->is_object()) {
        refuse(definition.place_of(schema),
               "'" + definition.place_of(schema) + "' must be a JSON schema that is an object",
               "invalid_type");
    }
    function["parameters"] = parameters != nullptr
                                 ? *parameters
                                 : Json{{"type", "object"}, {"properties", Json::object()}};
    return Json{{"type", "function"}, {"function", std::move(function)}};
}

Json read_tools(Members &body, bool nested) {
    Json tools = Json::array();
    const Json *given = body.list("tools");
    for (size_t i = 0; given != nullptr && i < given->size(); ++i) {
        Members tool((*given)[i], "tools[" + std::to_string(i) + "]");
        const std::string type = tool.needed_text("type");
        if (type != "function") {
            refuse(tool.place_of("type"),
                   "'" + tool.place() + "' is of type '" + type + "'; only 'function' is supported",
                   "unsupported_value");
        }
        if (nested) {
            Members function(tool.needed("function"), tool.place_of("function"));
            tools.push_back(read_tool(function, "parameters"));
        } else {
            tools.push_back(read_tool(tool, "parameters"));
        }
    }
    return tools;
}

bool has_tool(const Json &tools, const std::string &name) {
    return std::any_of(tools.begin(), tools.end(),
                       [&](const Json &tool) { return tool["function"]["name"] == name; });
}

void set_effort(Json &switches, const std::string &effort, const std::string &place) {
    if (effort == "none") {
        switches["enable_thinking"] = false;
        return;
    }
    const auto known = {"minimal", "low", "medium", "high", "xhigh", "max"};
    if (std::find(known.begin(), known.end(), effort) == known.end()) {
        refuse(place, "'" + place + "' must be none, minimal, low, medium, high, xhigh or max");
    }
    // Templates that grade efforts know three.
    const bool low = effort == "minimal" || effort == "low";
    switches["reasoning_effort"] = low ? "low" : effort == "medium" ? "medium" : "high";
    switches["enable_thinking"] = true;
}

void add_switches(Json &switches, const Json *given, const std::string &place) {
    if (given == nullptr) {
        return;
    }
    Members members(*given, place);
    members.unsupported({"messages", "tools", "documents", "add_generation_prompt",
                         "continue_final_message", "tokenize"});
    for (const auto &[name, value] : given->items()) {
        if (!value.is_null()) {
            switches[name] = value;
        }
    }
}

Json make_conversation(Json messages, Json tools, const Json &switches) {
    name_results(messages);
    Json conversation = {{"messages", std::move(messages)}};
    if (!tools.empty()) {
        conversation["tools"] = std::move(tools);
    }
    for (const auto &[name, value] : switches.items()) {
        conversation[name] = value;
    }
    return conversation;
}

Json continued(const Json &stored, const Json &conversation) {
    Json messages = Json::array();
    const auto add = [&](const Json &list, bool instructions) {
        for (const Json &message : list) {
            if (is_instructions(message) == instructions) {
                messages.push_back(message);
            }
        }
    };
    add(conversation["messages"], true);
    add(stored["messages"], false);
    add(conversation["messages"], false);
    name_results(messages);
    Json joined = conversation;
    joined["messages"] = std::move(messages);
    return joined;
}

std::string call_id(const Json &conversation, uint32_t choice, size_t index) {
    const std::string text = conversation.dump(-1, ' ', false, Json::error_handler_t::replace) +
                             "/" + std::to_string(choice) + "/" + std::to_string(index);
    uint64_t hash = 0xcbf29ce484222325U; // FNV-1a
    for (const char c : text) {
        hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3U;
    }
    hash = (hash ^ (hash >> 32U)) * 0xd6e8feb86659fd93U;
    hash ^= hash >> 32U;
    std::string id;
    for (int i = 0; i < 9; ++i, hash /= 36) {
        id += "0123456789abcdefghijklmnopqrstuvwxyz"[hash % 36];
    }
    return id;
}

Json with_reply(Json conversation, const Reply &reply) {
    conversation["messages"].push_back(
        assistant_message(reply.content, reply.thoughts, reply.calls));
    return conversation;
}

} // namespace serve::api
