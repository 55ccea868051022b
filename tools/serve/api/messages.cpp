// POST /v1/messages and /v1/messages/count_tokens: what clients ask for.
#include "tools/serve/api/conversation.h"
#include "tools/serve/api/settings.h"

namespace serve::api {

namespace {

// A message of the assistant. Its blocks of one kind are one text, cut where another kind came
// between them while the reply was streamed.
Json read_blocks_of_assistant(const Json &content, const std::string &place) {
    if (!content.is_array()) {
        return text_message("assistant", content_text(content, place));
    }
    std::string text, thoughts;
    std::vector<Call> calls;
    for (size_t i = 0; i < content.size(); ++i) {
        Members block(content[i], place + "[" + std::to_string(i) + "]");
        const std::string type = block.needed_text("type");
        if (type == "text") {
            text += block.needed_text("text");
        } else if (type == "thinking") {
            thoughts += block.needed_text("thinking");
        } else if (type == "tool_use") {
            const Json &input = block.needed("input");
            Members arguments(input, block.place_of("input"));
            calls.push_back({.id = bare_id(block.needed_text("id")),
                             .name = block.needed_text("name"),
                             .arguments = input});
        } else {
            refuse(block.place(),
                   "'" + block.place() + "' is of type '" + type +
                       "'; only text, thinking and tool_use are supported",
                   "unsupported_value");
        }
    }
    return assistant_message(text, thoughts, calls);
}

// A message of the user: results of tools are messages of their own.
void read_blocks_of_user(const Json &content, const std::string &place, Json &messages) {
    Json texts = Json::array();
    const auto finish = [&] {
        if (!texts.empty()) {
            messages.push_back(text_message("user", content_text(texts, place)));
            texts = Json::array();
        }
    };
    for (size_t i = 0; i < content.size(); ++i) {
        Members block(content[i], place + "[" + std::to_string(i) + "]");
        const std::string type = block.needed_text("type");
        if (type == "tool_result") {
            finish();
            const Json *result = block.find("content");
            messages.push_back(tool_message(
                bare_id(block.needed_text("tool_use_id")),
                result != nullptr ? content_text(*result, block.place_of("content")) : ""));
        } else if (type == "text") {
            block.needed_text("text");
            texts.push_back(content[i]);
        } else {
            refuse(block.place(),
                   "'" + block.place() + "' is of type '" + type +
                       "'; only text and tool_result are supported",
                   "unsupported_value");
        }
    }
    finish();
}

Json read_turns(Members &body) {
    Json messages = Json::array();
    if (const Json *system = body.find("system")) {
        messages.push_back(text_message("system", content_text(*system, "system")));
    }
    const Json &given = body.needed_list("messages");
    if (given.empty()) {
        refuse("messages", "'messages' is empty");
    }
    for (size_t i = 0; i < given.size(); ++i) {
        Members message(given[i], "messages[" + std::to_string(i) + "]");
        const std::string role = message.needed_text("role");
        const Json &content = message.needed("content");
        const std::string place = message.place_of("content");
        if (role == "assistant") {
            messages.push_back(read_blocks_of_assistant(content, place));
        } else if (role != "user") {
            refuse(message.place_of("role"),
                   "'" + message.place_of("role") + "' must be user or assistant");
        } else if (content.is_array()) {
            read_blocks_of_user(content, place, messages);
        } else {
            messages.push_back(text_message("user", content_text(content, place)));
        }
    }
    return messages;
}

Json read_message_tools(Members &body) {
    Json tools = Json::array();
    const Json *given = body.list("tools");
    for (size_t i = 0; given != nullptr && i < given->size(); ++i) {
        Members tool((*given)[i], "tools[" + std::to_string(i) + "]");
        const std::string type = tool.text("type").value_or("custom");
        if (type != "custom") {
            refuse(tool.place_of("type"),
                   "'" + tool.place() + "' is of type '" + type +
                       "'; only tools of the client are supported",
                   "unsupported_value");
        }
        tools.push_back(read_tool(tool, "input_schema"));
    }
    return tools;
}

void read_message_choice(Members &body, const Json &tools, GenerationRequest &request) {
    const Json *given = body.find("tool_choice");
    if (given == nullptr) {
        return;
    }
    Members choice(*given, "tool_choice");
    const std::string type = choice.needed_text("type");
    request.parallel = !choice.flag("disable_parallel_tool_use").value_or(false);
    if (type == "none") {
        request.answer = Answer::none;
    } else if (type == "any" || type == "tool") {
        request.answer = Answer::tool;
        request.tool = type == "tool" ? choice.needed_text("name") : "";
        if (tools.empty() || (type == "tool" && !has_tool(tools, request.tool))) {
            refuse("tool_choice", "'tool_choice' demands a tool that 'tools' lacks");
        }
    } else if (type != "auto") {
        refuse("tool_choice.type", "'tool_choice.type' must be auto, any, tool or none");
    }
}

void read_thinking(Members &body, Json &switches) {
    if (const Json *given = body.find("thinking")) {
        Members thinking(*given, "thinking");
        const std::string type = thinking.needed_text("type");
        if (type != "enabled" && type != "adaptive" && type != "disabled") {
            refuse("thinking.type", "'thinking.type' must be enabled, adaptive or disabled");
        }
        switches["enable_thinking"] = type != "disabled";
    }
}

// "output_config": effort and the reply's schema.
void read_output(Members &body, Json &switches, GenerationRequest &request) {
    const Json *given = body.find("output_config");
    if (given == nullptr) {
        return;
    }
    Members output(*given, "output_config");
    if (const auto effort = output.text("effort")) {
        set_effort(switches, *effort, "output_config.effort");
    }
    if (const Json *described = output.find("format")) {
        Members format(*described, "output_config.format");
        if (format.needed_text("type") != "json_schema") {
            refuse("output_config.format.type", "'output_config.format.type' must be json_schema");
        }
        request.form = schema_form(format);
    }
    output.refuse_others();
}

// What the prompt is made of, which both of the API's calls have.
GenerationRequest read_message_prompt(Members &body) {
    GenerationRequest request;
    request.dialect = Dialect::messages;
    request.model = body.text("model").value_or("");
    Json messages = read_turns(body);
    Json tools = read_message_tools(body);
    read_message_choice(body, tools, request);
    Json switches = Json::object();
    read_output(body, switches, request);
    read_thinking(body, switches);
    add_switches(switches, body.find("chat_template_kwargs"), "chat_template_kwargs");
    request.conversation = make_conversation(std::move(messages), std::move(tools), switches);
    body.ignore({"cache_control", "diagnostics", "inference_geo", "metadata", "service_tier",
                 "speed", "user_profile_id", "workspace_id"});
    body.unsupported({"container", "context_management", "mcp_servers"});
    return request;
}

} // namespace

GenerationRequest read_messages(std::string_view text) {
    const Json parsed = parse_body(text);
    Members body(parsed, "");
    GenerationRequest request = read_message_prompt(body);
    read_sampling(body, request);
    read_stops(body, "stop_sequences", request);
    read_guided_forms(body, request);
    body.needed("max_tokens");
    request.tokens_max = body.integer("max_tokens", 1, INT32_MAX);
    request.stream = body.flag("stream").value_or(false);
    if (request.conversation["messages"].back()["role"] == "assistant") {
        refuse("messages",
               "the last of 'messages' is the assistant's, and continuing it is not "
               "supported",
               "unsupported_value");
    }
    body.refuse_others();
    return request;
}

GenerationRequest read_token_count(std::string_view text) {
    const Json parsed = parse_body(text);
    Members body(parsed, "");
    GenerationRequest request = read_message_prompt(body);
    body.refuse_others();
    return request;
}

} // namespace serve::api
