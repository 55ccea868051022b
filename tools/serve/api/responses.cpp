// POST /v1/responses: what clients ask for.
#include "tools/serve/api/conversation.h"
#include "tools/serve/api/settings.h"

namespace serve::api {

namespace {

// The assistant's message that consecutive items make: thoughts, text and calls. Nothing follows
// calls in it, and a message's item does not follow another.
struct Turn {
    std::string content, thoughts;
    std::vector<Call> calls;
    bool begun = false, said = false; // said: the last item was a message

    void finish(Json &messages) {
        if (begun) {
            messages.push_back(assistant_message(content, thoughts, calls));
        }
        *this = Turn{};
    }
};

// The text of a reasoning item: that of its content, or of its summary if there is none.
std::string read_thoughts(Members &item) {
    std::string thoughts;
    for (const char *name : {"content", "summary"}) {
        const Json *parts = item.list(name);
        for (size_t i = 0; parts != nullptr && i < parts->size(); ++i) {
            Members part((*parts)[i], item.place_of(name) + "[" + std::to_string(i) + "]");
            thoughts += part.needed_text("text");
        }
        if (!thoughts.empty()) {
            break;
        }
    }
    return thoughts;
}

void read_message_item(Members &item, Turn &turn, Json &messages) {
    const std::string role = item.needed_text("role");
    const std::string content = content_text(item.needed("content"), item.place_of("content"));
    if (role == "assistant") {
        if (turn.said || !turn.calls.empty()) {
            turn.finish(messages);
        }
        turn.content += content;
        turn.begun = turn.said = true;
        return;
    }
    if (role != "user" && role != "system" && role != "developer") {
        refuse(item.place_of("role"),
               "'" + item.place_of("role") + "' must be user, assistant, system or developer");
    }
    turn.finish(messages);
    messages.push_back(text_message(role == "user" ? "user" : "system", content));
}

void read_item(const Json &given, const std::string &place, Turn &turn, Json &messages) {
    Members item(given, place);
    const std::string type = item.text("type").value_or("message");
    if (type == "message") {
        read_message_item(item, turn, messages);
    } else if (type == "reasoning") {
        if (!turn.calls.empty()) {
            turn.finish(messages);
        }
        turn.thoughts += read_thoughts(item);
        turn.begun = true;
        turn.said = false;
    } else if (type == "function_call") {
        turn.calls.push_back({.id = bare_id(item.needed_text("call_id")),
                              .name = item.needed_text("name"),
                              .arguments = read_arguments(item.needed_text("arguments"),
                                                          item.place_of("arguments"))});
        turn.begun = true;
    } else if (type == "function_call_output") {
        turn.finish(messages);
        messages.push_back(
            tool_message(bare_id(item.needed_text("call_id")),
                         content_text(item.needed("output"), item.place_of("output"))));
    } else {
        refuse(item.place_of("type"),
               "'" + place + "' is of type '" + type +
                   "'; only message, reasoning, function_call and function_call_output are "
                   "supported",
               "unsupported_value");
    }
}

Json read_input(Members &body, const GenerationRequest &request) {
    Json messages = Json::array();
    if (const auto instructions = body.text("instructions")) {
        messages.push_back(text_message("system", *instructions));
        messages.back()["instructions"] = true; // what `continued` replaces
    }
    const bool follows = !request.previous.empty() || !request.kept.empty();
    const Json *input = follows ? body.find("input") : &body.needed("input");
    if (input != nullptr && input->is_string()) {
        messages.push_back(text_message("user", input->get<std::string>()));
    } else if (input != nullptr) {
        Turn turn;
        body.list("input");
        for (size_t i = 0; i < input->size(); ++i) {
            read_item((*input)[i], "input[" + std::to_string(i) + "]", turn, messages);
        }
        turn.finish(messages);
    }
    if (messages.empty() && !follows) {
        refuse("input", "'input' is empty");
    }
    return messages;
}

void read_text(Members &body, GenerationRequest &request) {
    const Json *given = body.find("text");
    if (given == nullptr) {
        return;
    }
    Members text(*given, "text");
    text.ignore({"verbosity"});
    if (const Json *described = text.find("format")) {
        Members format(*described, "text.format");
        const std::string type = format.needed_text("type");
        if (type == "json_object") {
            request.form = {STASIS_CONSTRAINT_JSON_SCHEMA, R"({"type":"object"})"};
        } else if (type == "json_schema") {
            request.form = schema_form(format);
        } else if (type != "text") {
            refuse("text.format.type", "'text.format.type' must be text, json_object or "
                                       "json_schema");
        }
    }
    text.refuse_others();
}

void read_include(Members &body, GenerationRequest &request) {
    request.best = static_cast<uint32_t>(body.integer("top_logprobs", 0, 20).value_or(0));
    request.log_probabilities = request.best > 0;
    const Json *include = body.list("include");
    for (size_t i = 0; include != nullptr && i < include->size(); ++i) {
        const Json &one = (*include)[i];
        if (one == "message.output_text.logprobs") {
            request.log_probabilities = true;
        } else if (one != "reasoning.encrypted_content") { // thoughts are in the open here
            refuse("include", "'include' has " + one.dump() + ", which is not supported",
                   "unsupported_value");
        }
    }
}

// previous_response_id, conversation and store.
void read_place(Members &body, GenerationRequest &request) {
    request.previous = body.text("previous_response_id").value_or("");
    if (const Json *kept = body.find("conversation")) {
        if (kept->is_string()) {
            request.kept = kept->get<std::string>();
        } else {
            Members conversation(*kept, "conversation");
            request.kept = conversation.needed_text("id");
        }
    }
    if (!request.previous.empty() && !request.kept.empty()) {
        refuse("conversation",
               "'conversation' and 'previous_response_id' cannot be given together");
    }
    request.store = body.flag("store").value_or(true);
}

Json read_reasoning(Members &body) {
    Json switches = Json::object();
    if (const Json *given = body.find("reasoning")) {
        Members reasoning(*given, "reasoning");
        reasoning.ignore({"context", "generate_summary", "mode", "summary"});
        if (const auto effort = reasoning.text("effort")) {
            set_effort(switches, *effort, "reasoning.effort");
        }
        reasoning.refuse_others();
    }
    add_switches(switches, body.find("chat_template_kwargs"), "chat_template_kwargs");
    return switches;
}

void read_response_rest(Members &body) {
    body.ignore({"max_tool_calls", "prompt_cache_key", "prompt_cache_options",
                 "prompt_cache_retention", "safety_identifier", "service_tier", "stream_options",
                 "user"});
    body.unsupported({"access_programs", "background_options", "context_management", "image",
                      "moderation", "prompt"});
    if (body.flag("background").value_or(false)) {
        body.unsupported({"background"});
    }
    if (body.text("truncation").value_or("disabled") != "disabled") {
        refuse("truncation", "'truncation' must be disabled: no turns are dropped",
               "unsupported_value");
    }
    if (const Json *metadata = body.find("metadata")) {
        Members(*metadata, "metadata");
    }
    body.refuse_others();
}

// What an answer repeats of its request, with the defaults that apply.
Json make_echo(Members &body, const GenerationRequest &request) {
    const auto given = [&](const char *name, Json otherwise) {
        const Json *found = body.find(name);
        return found != nullptr ? *found : otherwise;
    };
    Json text = Json::object();
    text["format"]["type"] = "text";
    const Json previous = request.previous.empty() ? Json() : Json(request.previous);
    Json echo = {{"background", false},
                 {"instructions", given("instructions", nullptr)},
                 {"max_output_tokens", given("max_output_tokens", nullptr)},
                 {"metadata", given("metadata", Json::object())},
                 {"parallel_tool_calls", request.parallel},
                 {"previous_response_id", previous},
                 {"reasoning", given("reasoning", Json{{"effort", nullptr}, {"summary", nullptr}})},
                 {"store", request.store},
                 {"temperature", given("temperature", nullptr)},
                 {"text", given("text", text)},
                 {"tool_choice", given("tool_choice", "auto")},
                 {"tools", given("tools", Json::array())},
                 {"top_logprobs", request.best},
                 {"top_p", given("top_p", nullptr)},
                 {"truncation", "disabled"}};
    if (!request.kept.empty()) {
        echo["conversation"]["id"] = request.kept;
    }
    return echo;
}

} // namespace

GenerationRequest read_response(std::string_view text) {
    const Json parsed = parse_body(text);
    Members body(parsed, "");
    GenerationRequest request;
    request.dialect = Dialect::responses;
    request.model = body.text("model").value_or("");
    request.stream = body.flag("stream").value_or(false);
    read_place(body, request);
    read_sampling(body, request);
    read_stops(body, "stop", request);
    request.tokens_max = body.integer("max_output_tokens", 1, INT32_MAX);
    read_text(body, request);
    read_guided_forms(body, request);
    read_include(body, request);
    Json messages = read_input(body, request);
    Json tools = read_tools(body, false);
    read_tool_choice(body, nullptr, tools, request);
    request.parallel = body.flag("parallel_tool_calls").value_or(true);
    const Json switches = read_reasoning(body);
    request.conversation = make_conversation(std::move(messages), std::move(tools), switches);
    request.echo = make_echo(body, request);
    read_response_rest(body);
    return request;
}

} // namespace serve::api
