// POST /v1/chat/completions: what clients ask for.
#include "tools/serve/api/conversation.h"
#include "tools/serve/api/settings.h"

namespace serve::api {

namespace {

Call read_chat_call(const Json &given, const std::string &place) {
    Members call(given, place);
    const std::string type = call.text("type").value_or("function");
    if (type != "function") {
        refuse(call.place_of("type"),
               "'" + place + "' is of type '" + type + "'; only 'function' is supported",
               "unsupported_value");
    }
    Members function(call.needed("function"), call.place_of("function"));
    const Json &arguments = function.needed("arguments");
    return {.id = bare_id(call.needed_text("id")),
            .name = function.needed_text("name"),
            .arguments = arguments.is_object() ? arguments
                                               : read_arguments(function.needed_text("arguments"),
                                                                function.place_of("arguments"))};
}

Json read_chat_assistant(Members &message) {
    message.unsupported({"function_call"});
    const Json *content = message.find("content");
    std::string text =
        content != nullptr ? content_text(*content, message.place_of("content")) : "";
    if (text.empty()) {
        text = message.text("refusal").value_or("");
    }
    std::optional<std::string> thoughts = message.text("reasoning_content");
    if (!thoughts) {
        thoughts = message.text("reasoning"); // as vLLM calls it
    }
    std::vector<Call> calls;
    if (const Json *given = message.list("tool_calls")) {
        for (size_t i = 0; i < given->size(); ++i) {
            calls.push_back(read_chat_call((*given)[i], message.place_of("tool_calls") + "[" +
                                                            std::to_string(i) + "]"));
        }
    }
    return assistant_message(text, thoughts.value_or(""), calls);
}

Json read_chat_message(const Json &given, const std::string &place) {
    Members message(given, place);
    const std::string role = message.needed_text("role");
    if (role == "assistant") {
        return read_chat_assistant(message);
    }
    const std::string content =
        content_text(message.needed("content"), message.place_of("content"));
    const std::string name = message.text("name").value_or("");
    Json read;
    if (role == "tool") {
        read = {{"role", role}, {"tool_call_id", bare_id(message.needed_text("tool_call_id"))}};
    } else if (role == "user" || role == "system" || role == "developer") {
        read = {{"role", role == "user" ? "user" : "system"}};
    } else {
        refuse(message.place_of("role"), "'" + message.place_of("role") + "' is '" + role +
                                             "'; it must be system, developer, user, assistant "
                                             "or tool");
    }
    if (!name.empty()) {
        read["name"] = name;
    }
    read["content"] = content;
    return read;
}

void read_response_format(Members &body, GenerationRequest &request) {
    const Json *given = body.find("response_format");
    if (given == nullptr) {
        return;
    }
    Members format(*given, "response_format");
    const std::string type = format.needed_text("type");
    if (type == "json_object") {
        request.form = {STASIS_CONSTRAINT_JSON_SCHEMA, R"({"type":"object"})"};
    } else if (type == "json_schema") {
        Members schema(format.needed("json_schema"), "response_format.json_schema");
        request.form = schema_form(schema);
    } else if (type != "text") {
        refuse("response_format.type",
               "'response_format.type' must be text, json_object or json_schema");
    }
}

// Members that change nothing about the reply, and those that would.
void read_chat_rest(Members &body) {
    body.ignore({"metadata", "prediction", "prompt_cache_key", "prompt_cache_options",
                 "prompt_cache_retention", "safety_identifier", "service_tier", "store", "user",
                 "verbosity"});
    body.unsupported({"audio", "function_call", "functions", "moderation", "web_search_options"});
    if (const Json *modalities = body.list("modalities")) {
        for (const Json &modality : *modalities) {
            if (modality != "text") {
                refuse("modalities",
                       "'modalities' has " + modality.dump() + "; only text is supported",
                       "unsupported_value");
            }
        }
    }
    body.refuse_others();
}

} // namespace

GenerationRequest read_chat(std::string_view text) {
    const Json parsed = parse_body(text);
    Members body(parsed, "");
    GenerationRequest request;
    request.dialect = Dialect::chat;
    read_delivery(body, request);
    read_sampling(body, request);
    read_stops(body, "stop", request);
    request.tokens_max = body.integer("max_tokens", 1, INT32_MAX);
    if (const auto most = body.integer("max_completion_tokens", 1, INT32_MAX)) {
        request.tokens_max = most;
    }
    request.log_probabilities = body.flag("logprobs").value_or(false);
    request.best = static_cast<uint32_t>(body.integer("top_logprobs", 0, 20).value_or(0));
    if (request.best > 0 && !request.log_probabilities) {
        refuse("top_logprobs", "'top_logprobs' needs 'logprobs' to be true");
    }
    read_response_format(body, request);
    read_guided_forms(body, request);

    Json messages = Json::array();
    const Json &given = body.needed_list("messages");
    for (size_t i = 0; i < given.size(); ++i) {
        messages.push_back(read_chat_message(given[i], "messages[" + std::to_string(i) + "]"));
    }
    if (messages.empty()) {
        refuse("messages", "'messages' is empty");
    }
    Json tools = read_tools(body, true);
    read_tool_choice(body, "function", tools, request);
    request.parallel = body.flag("parallel_tool_calls").value_or(true);
    Json switches = Json::object();
    if (const auto effort = body.text("reasoning_effort")) {
        set_effort(switches, *effort, "reasoning_effort");
    }
    add_switches(switches, body.find("chat_template_kwargs"), "chat_template_kwargs");
    request.conversation = make_conversation(std::move(messages), std::move(tools), switches);
    read_chat_rest(body);
    return request;
}

} // namespace serve::api
