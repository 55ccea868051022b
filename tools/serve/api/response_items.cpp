// Items of /v1/responses.
#include "tools/serve/api/response_items.h"

#include <algorithm>

namespace serve::api {

namespace {

// The items of one message of a conversation. `ids` are theirs; null: they depend on what the
// message says and its place. A tool's result is given its name when a turn needs it, which is no
// part of the item.
void add_items(Json &items, const Json &message, size_t place, const Json &ids) {
    const std::string role = message["role"];
    const std::string content = message["content"];
    Json named = message;
    if (role == "tool") {
        named.erase("name");
    }
    size_t next = 0;
    const auto id = [&](const char *prefix, size_t part) {
        const size_t index = next++;
        return index < ids.size() ? ids[index].get<std::string>()
                                  : prefix + call_id(named, static_cast<uint32_t>(place), part);
    };
    if (role == "tool") {
        items.push_back(Json{{"type", "function_call_output"},
                             {"id", id("fco_", 0)},
                             {"status", "completed"},
                             {"call_id", "call_" + message["tool_call_id"].get<std::string>()},
                             {"output", content}});
        return;
    }
    if (role != "assistant") {
        Json part = {{"type", "input_text"}, {"text", content}};
        items.push_back(Json{{"type", "message"},
                             {"id", id("msg_", 0)},
                             {"status", "completed"},
                             {"role", role},
                             {"content", Json::array({std::move(part)})}});
        return;
    }
    const std::string thoughts = message.value("reasoning_content", std::string());
    const Json calls = message.value("tool_calls", Json::array());
    if (!thoughts.empty()) {
        items.push_back(thoughts_item(id("rs_", 0), thoughts, "completed"));
    }
    if (!content.empty() || (thoughts.empty() && calls.empty())) {
        items.push_back(message_item(id("msg_", 1), content, Json::array(), "completed"));
    }
    for (size_t i = 0; i < calls.size(); ++i) {
        const Json &function = calls[i]["function"];
        items.push_back(call_item(id("fc_", 2 + i),
                                  {calls[i]["id"], function["name"], function["arguments"]},
                                  "completed"));
    }
}

Json items_from(const Json &conversation, size_t from) {
    Json items = Json::array();
    const Json &messages = conversation["messages"];
    const Json ids = conversation.value("ids", Json::array());
    size_t place = 0; // instructions are no items, and may be there or not
    for (size_t i = 0; i < messages.size(); ++i) {
        if (messages[i].contains("instructions")) {
            continue;
        }
        if (i >= from) {
            add_items(items, messages[i], place, i < ids.size() ? ids[i] : Json());
        }
        ++place;
    }
    return items;
}

Json members_of(const Json &items, const char *name) {
    Json values = Json::array();
    for (const Json &item : items) {
        values.push_back(item[name]);
    }
    return values;
}

Json::iterator find_item(Json &items, const std::string &id) {
    return std::find_if(items.begin(), items.end(),
                        [&](const Json &item) { return item["id"] == id; });
}

Json::iterator needed_item(Json &items, const std::string &id) {
    const auto found = find_item(items, id);
    if (found == items.end()) {
        throw Refused{404, "not_found", "the conversation has no item '" + id + "'", ""};
    }
    return found;
}

std::string list_body(Json data, bool more) {
    const Json none = "";
    const Json first = data.empty() ? none : data.front()["id"];
    const Json last = data.empty() ? none : data.back()["id"];
    return to_text(Json{{"object", "list"},
                        {"data", std::move(data)},
                        {"first_id", first},
                        {"last_id", last},
                        {"has_more", more}});
}

} // namespace

Json thoughts_part(const std::string &text) {
    return Json{{"type", "reasoning_text"}, {"text", text}};
}

Json message_part(const std::string &text, const Json &likelihoods) {
    return Json{{"type", "output_text"},
                {"text", text},
                {"annotations", Json::array()},
                {"logprobs", likelihoods}};
}

Json thoughts_item(const std::string &id, const std::string &text, const char *status) {
    return Json{{"type", "reasoning"},
                {"id", id},
                {"summary", Json::array()},
                {"content", Json::array({thoughts_part(text)})},
                {"status", status}};
}

Json message_item(const std::string &id, const std::string &text, const Json &likelihoods,
                  const char *status) {
    return Json{{"type", "message"},
                {"id", id},
                {"status", status},
                {"role", "assistant"},
                {"content", Json::array({message_part(text, likelihoods)})}};
}

Json call_item(const std::string &id, const Call &call, const char *status) {
    return Json{{"type", "function_call"},
                {"id", id},
                {"call_id", "call_" + call.id},
                {"name", call.name},
                {"arguments", to_text(call.arguments)},
                {"status", status}};
}

std::string input_items_body(const Json &conversation, const Page &page) {
    if (page.limit < 1 || page.limit > 100) {
        throw Refused{400, "invalid_value", "'limit' must be from 1 to 100", "limit"};
    }
    Json items = items_from(conversation, 0);
    if (!page.ascending) {
        std::reverse(items.begin(), items.end());
    }
    auto first = items.begin();
    if (!page.after.empty()) {
        first = find_item(items, page.after);
        if (first == items.end()) {
            throw Refused{400, "invalid_value", "'after' names no item: '" + page.after + "'",
                          "after"};
        }
        ++first;
    }
    const auto count = std::min<ptrdiff_t>(page.limit, items.end() - first);
    Json data = Json::array();
    data.get_ref<Json::array_t &>().assign(first, first + count);
    return list_body(std::move(data), first + count != items.end());
}

std::string added_items_body(const Json &conversation, size_t from) {
    return list_body(items_from(conversation, from), false);
}

std::string item_body(const Json &conversation, const std::string &id) {
    Json items = items_from(conversation, 0);
    return to_text(*needed_item(items, id));
}

void give_item_ids(Json &record, const Json &output) {
    const Json &messages = record["messages"];
    Json ids = record.value("ids", Json::array());
    size_t made = record.value("messages_made", ids.size());
    while (ids.size() < messages.size()) {
        Json items = Json::array();
        add_items(items, messages[ids.size()], made++, Json());
        const bool last = ids.size() + 1 == messages.size();
        const bool is_output =
            last && output.is_array() && members_of(items, "type") == members_of(output, "type");
        ids.push_back(members_of(is_output ? output : items, "id"));
    }
    record["ids"] = std::move(ids);
    record["messages_made"] = made;
}

void remove_item(Json &record, const std::string &id) {
    give_item_ids(record, Json());
    Json items = items_from(record, 0);
    items.erase(needed_item(items, id));
    Json messages = Json::array(), ids = Json::array();
    read_input_items(items, "items", messages, &ids);
    record["messages"] = std::move(messages);
    record["ids"] = std::move(ids);
    record.erase("model"); // the session has what was said; what goes on is found as of new ones
    record.erase("session");
}

} // namespace serve::api
