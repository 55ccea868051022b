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
    std::string content_id, thoughts_id;
    std::vector<std::string> call_ids;
};

// Messages, and where they are wanted the ids of the items that each has (response_items.cpp).
struct Read {
    Json &messages;
    Json *ids;
    Turn turn{};

    void add(Json message, const std::string &id) {
        messages.push_back(std::move(message));
        if (ids != nullptr) {
            ids->push_back(Json::array({id}));
        }
    }
    void finish_turn() {
        if (turn.begun) {
            messages.push_back(assistant_message(turn.content, turn.thoughts, turn.calls));
        }
        if (turn.begun && ids != nullptr) {
            Json own = Json::array();
            if (!turn.thoughts.empty()) {
                own.push_back(turn.thoughts_id);
            }
            if (!turn.content.empty() || (turn.thoughts.empty() && turn.calls.empty())) {
                own.push_back(turn.content_id);
            }
            for (const std::string &id : turn.call_ids) {
                own.push_back(id);
            }
            ids->push_back(std::move(own));
        }
        turn = Turn{};
    }
};

// The first item of those that become one text names it.
void take_id(std::string &id, const std::string &text, const std::string &item) {
    if (text.empty()) {
        id = item;
    }
}

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

void read_message_item(Members &item, const std::string &id, Read &read) {
    const std::string role = item.needed_text("role");
    const std::string content = content_text(item.needed("content"), item.place_of("content"));
    if (role == "assistant") {
        if (read.turn.said || !read.turn.calls.empty()) {
            read.finish_turn();
        }
        take_id(read.turn.content_id, read.turn.content, id);
        read.turn.content += content;
        read.turn.begun = read.turn.said = true;
        return;
    }
    if (role != "user" && role != "system" && role != "developer") {
        refuse(item.place_of("role"),
               "'" + item.place_of("role") + "' must be user, assistant, system or developer");
    }
    read.finish_turn();
    read.add(text_message(role == "user" ? "user" : "system", content), id);
}

void read_item(const Json &given, const std::string &place, Read &read) {
    Members item(given, place);
    const std::string type = item.text("type").value_or("message");
    const std::string id = read.ids != nullptr ? item.needed_text("id") : "";
    if (type == "message") {
        read_message_item(item, id, read);
    } else if (type == "reasoning") {
        // Items with ids are those of messages, in which one thought comes first: each keeps its
        // own, also where what stood between two replies was removed. Without ids they may be those
        // of one answer, in which thoughts and texts take turns.
        if (!read.turn.calls.empty() || read.ids != nullptr) {
            read.finish_turn();
        }
        take_id(read.turn.thoughts_id, read.turn.thoughts, id);
        read.turn.thoughts += read_thoughts(item);
        read.turn.begun = true;
        read.turn.said = false;
    } else if (type == "function_call") {
        read.turn.calls.push_back({.id = bare_id(item.needed_text("call_id")),
                                   .name = item.needed_text("name"),
                                   .arguments = read_arguments(item.needed_text("arguments"),
                                                               item.place_of("arguments"))});
        read.turn.call_ids.push_back(id);
        read.turn.begun = true;
    } else if (type == "function_call_output") {
        read.finish_turn();
        read.add(tool_message(bare_id(item.needed_text("call_id")),
                              content_text(item.needed("output"), item.place_of("output"))),
                 id);
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

void read_input_items(const Json &items, const std::string &place, Json &messages, Json *ids) {
    Read read{messages, ids};
    for (size_t i = 0; i < items.size(); ++i) {
        read_item(items[i], place + "[" + std::to_string(i) + "]", read);
    }
    read.finish_turn();
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
