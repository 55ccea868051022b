// POST /v1/responses: what clients ask for.
#include "tools/serve/api/conversation.h"
#include "tools/serve/api/response_items.h"
#include "tools/serve/api/settings.h"

namespace serve::api {

namespace {

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
        body.list("input");
        read_input_items(*input, "input", messages);
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
        refuse("conversation", "'conversation' and 'previous_response_id' cannot be given together",
               "mutually_exclusive_parameters");
    }
    request.store = body.flag("store").value_or(true);
    if (!request.store && !request.kept.empty()) {
        refuse("store", "a reply in a 'conversation' is stored: 'store' cannot be false",
               "unsupported_value");
    }
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
