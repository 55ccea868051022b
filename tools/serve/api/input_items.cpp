// Items that clients send: of /v1/responses and /v1/conversations.
#include "tools/serve/api/conversation.h"
#include "tools/serve/api/response_items.h"

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

// Returns the metadata, or null if there are none.
Json read_metadata(Members &body) {
    const Json *given = body.find("metadata");
    if (given == nullptr) {
        return nullptr;
    }
    Members metadata(*given, "metadata");
    if (given->size() > 16) {
        refuse("metadata", "'metadata' has more than 16 members");
    }
    for (const auto &[name, value] : given->items()) {
        const std::string text = metadata.text(name.c_str()).value_or("");
        if (name.size() > 256 || text.size() > 2048) { // bytes of 64 and 512 characters
            refuse("metadata", "'metadata' has names of at most 256 bytes, and texts of 2048");
        }
    }
    return *given;
}

Json read_items(Members &body, const Json *items) {
    Json messages = Json::array();
    if (items != nullptr) {
        body.list("items");
        read_input_items(*items, "items", messages);
    }
    body.ignore({"include"});
    body.refuse_others();
    return messages;
}

} // namespace

void read_input_items(const Json &items, const std::string &place, Json &messages) {
    Turn turn;
    for (size_t i = 0; i < items.size(); ++i) {
        read_item(items[i], place + "[" + std::to_string(i) + "]", turn, messages);
    }
    turn.finish(messages);
}

KeptRequest read_kept(std::string_view text) {
    const Json parsed = parse_body(text.empty() ? "{}" : text);
    Members body(parsed, "");
    KeptRequest request;
    request.metadata = read_metadata(body);
    request.messages = read_items(body, body.find("items"));
    return request;
}

KeptRequest read_kept_items(std::string_view text) {
    const Json parsed = parse_body(text);
    Members body(parsed, "");
    KeptRequest request;
    request.messages = read_items(body, &body.needed("items"));
    if (request.messages.empty()) {
        refuse("items", "'items' is empty");
    }
    return request;
}

KeptRequest read_kept_metadata(std::string_view text) {
    const Json parsed = parse_body(text);
    Members body(parsed, "");
    KeptRequest request;
    request.metadata = read_metadata(body);
    body.refuse_others();
    body.needed("metadata");
    return request;
}

} // namespace serve::api
