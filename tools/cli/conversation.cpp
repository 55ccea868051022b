// Conversations with tools and thoughts; see conversation.h.
#include "tools/cli/conversation.h"

#include <cstdio>

#include "tools/cli/model.h"

namespace command {
namespace {

constexpr const char *kAsking = R"({"messages": [{"role": "user", "content": "x"}])";

// Both names that templates have for it: Qwen, SmolLM3 and Gemma 4 the first, Granite the second.
std::string switches_of(bool on) {
    const std::string value = on ? "true" : "false";
    return ", \"enable_thinking\": " + value + ", \"thinking\": " + value;
}

// The definitions go to the library as they stand in the file, so that numbers and the order of
// members are rendered as they were written.
std::string tools_of(const std::string &tools) {
    return tools.empty() ? "" : ", \"tools\": " + tools;
}

std::string render(const stasis_model *model, const std::string &conversation,
                   const std::string &option) {
    return fetch_text(
        [&](char *buffer, size_t capacity, size_t *length, stasis_error *error) {
            return stasis_model_render_chat(model, conversation.data(), conversation.size(),
                                            STASIS_CHAT_REPLY, buffer, capacity, length, error);
        },
        option);
}

// Throws Failure if a model's template renders both the same, that is, ignores what differs.
void check_differ(const stasis_model *model, const std::string &a, const std::string &b,
                  const std::string &option, const char *lack) {
    if (render(model, kAsking + a + "}", option) == render(model, kAsking + b + "}", option)) {
        throw Failure(option + ": the model's chat template has no " + lack);
    }
}

const Json *member_of(const Json &object, const char *name) {
    const auto found = object.is_object() ? object.find(name) : object.end();
    return found != object.end() ? &*found : nullptr;
}

std::string text_of(const Json *value) {
    return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

} // namespace

std::string read_tools(const std::string &path) {
    std::string text = read_file(path);
    Json tools;
    try {
        tools = Json::parse(text);
    } catch (const Json::exception &error) {
        throw Failure("--tools: " + path + ": not JSON: " + error.what());
    }
    if (!tools.is_array() || tools.empty()) {
        throw Failure("--tools: " + path + ": expected a list of function definitions");
    }
    for (size_t i = 0; i < tools.size(); ++i) {
        const Json *function = member_of(tools[i], "function");
        if (text_of(member_of(tools[i], "type")) != "function" || function == nullptr ||
            text_of(member_of(*function, "name")).empty()) {
            throw Failure("--tools: " + path + ": definition " + std::to_string(i + 1) +
                          R"( is not of the form {"type": "function", "function": {"name": )"
                          R"(..., "parameters": ...}})");
        }
    }
    return text;
}

Conversation::Conversation(const stasis_model *model, std::string tools, Thinking thinking)
    : tools_(tools_of(tools)), switches_(thinking == as_it_is ? "" : switches_of(thinking == on)) {
    if (!tools_.empty()) {
        check_differ(model, "", tools_, "--tools", "place for tools");
    }
    if (!switches_.empty()) {
        check_differ(model, switches_of(true), switches_of(false), "--thinking",
                     "switch for thoughts");
    }
}

void Conversation::add(const Json &message) {
    try {
        static_cast<void>(message.dump());
    } catch (const Json::exception &) {
        throw Failure(text_of(member_of(message, "role")) + " turn: the text is not UTF-8");
    }
    messages_.push_back(message);
}

// The ids of their calls are given again, so that what is said anew gets the same ones.
void Conversation::drop_to(size_t size) {
    while (messages_.size() > size) {
        calls_ -= calls_of(messages_.back()).size();
        messages_.pop_back();
    }
}

Json Conversation::kept() const {
    return {{"messages", messages_}, {"calls", calls_}};
}

void Conversation::restore(const Json &kept) {
    std::vector<Json> messages;
    for (const Json &message : kept.at("messages")) {
        if (text_of(member_of(message, "role")).empty()) {
            throw Failure("a message has no role");
        }
        static_cast<void>(calls_of(message)); // throws if its calls are none
        messages.push_back(message);
    }
    calls_ = kept.at("calls").get<size_t>();
    messages_ = std::move(messages);
}

std::vector<ToolCall> Conversation::pending_calls() const {
    return messages_.empty() ? std::vector<ToolCall>() : calls_of(messages_.back());
}

std::string Conversation::text() const {
    return "{\"messages\": " + Json(messages_).dump() + tools_ + switches_ + "}";
}

stasis_status Conversation::append(stasis_session *session, const stasis_run_options *options,
                                   stasis_error *error) const {
    const std::string all = text();
    uint64_t position = 0;
    const auto append = [&] {
        return stasis_session_append_chat(session, all.data(), all.size(), STASIS_CHAT_REPLY,
                                          &position, options, error);
    };
    stasis_status status = append();
    if (status == STASIS_CONFLICT) { // the template renders an earlier turn otherwise now
        status = stasis_session_rewind(session, position, STASIS_REWIND_RECOMPUTE, options, error);
        status = status == STASIS_OK ? append() : status;
    }
    return status;
}

const Json &Conversation::take_reply(const stasis_session *session) {
    const std::string all = text();
    Json message = Json::parse(fetch_text(
        [&](char *buffer, size_t capacity, size_t *length, stasis_error *error) {
            return stasis_session_reply(session, all.data(), all.size(), STASIS_REPLY_COMPLETE,
                                        buffer, capacity, length, error);
        },
        "reply"));
    if (const auto calls = message.find("tool_calls"); calls != message.end()) {
        for (Json &call : *calls) {
            char id[16]; // Mistral's templates want nine letters and digits
            std::snprintf(id, sizeof id, "call%05zu", ++calls_ % 100000);
            if (!call.contains("id")) {
                call["id"] = id;
            }
        }
    }
    messages_.push_back(std::move(message));
    return messages_.back();
}

std::vector<ToolCall> calls_of(const Json &message) {
    std::vector<ToolCall> calls;
    const Json *list = member_of(message, "tool_calls");
    for (const Json &call : list != nullptr ? *list : Json::array()) {
        const Json &function = call.at("function");
        calls.push_back({text_of(member_of(call, "id")),
                         text_of(member_of(function, "name")),
                         {{"name", function.at("name")}, {"arguments", function.at("arguments")}}});
    }
    return calls;
}

} // namespace command
