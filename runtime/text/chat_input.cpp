// Reads conversations from JSON. A member of a message that is null counts as absent, and a thought
// is found under each name that templates read, as with transformers 5
// (utils/chat_template_utils.py: _normalize_chat_messages, _alias_reasoning_fields).
#include "runtime/text/chat_input.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "format/state/error.h"

namespace stasis {

namespace {

using jinja::Dict;
using jinja::Value;

const Value *member(const Dict &dict, std::string_view name) {
    const auto found = std::find_if(dict.begin(), dict.end(),
                                    [&](const auto &item) { return item.first == name; });
    return found != dict.end() ? &found->second : nullptr;
}

void set_member(Dict &dict, const char *name, const Value &value) {
    const auto found = std::find_if(dict.begin(), dict.end(),
                                    [&](const auto &item) { return item.first == name; });
    if (found != dict.end()) {
        found->second = value;
    } else {
        dict.emplace_back(name, value);
    }
}

Value read_message(const Value &message, size_t index) {
    if (message.dict() == nullptr) {
        fail(Status::invalid_argument, "the conversation's message %zu is %s, not an object", index,
             jinja::type_name(message));
    }
    Dict items = message.dict()->items;
    std::erase_if(items, [](const auto &item) { return item.second.template is<jinja::None>(); });
    const Value *role = member(items, "role");
    if (role == nullptr || role->text() == nullptr) {
        fail(Status::invalid_argument, "the conversation's message %zu has no role", index);
    }
    for (const char *name : {"reasoning_content", "thinking", "reasoning"}) {
        if (const Value *thought = member(items, name)) {
            const Value copy = *thought;
            if (member(items, "thinking") == nullptr) {
                items.insert(items.begin(), {"thinking", copy});
            }
            set_member(items, "reasoning_content", copy);
            break;
        }
    }
    return jinja::make_dict(std::move(items));
}

int number(std::string_view text, size_t at, size_t digits) {
    int value = 0;
    for (const char c : text.substr(at, digits)) {
        value = c >= '0' && c <= '9' && value >= 0 ? value * 10 + (c - '0') : -1;
    }
    return value;
}

} // namespace

ChatInput read_chat(std::string_view json) {
    const Value whole = jinja::from_json(json, "the conversation");
    const Value *messages = whole.dict() != nullptr ? whole.dict()->find("messages") : nullptr;
    if (messages == nullptr || messages->list() == nullptr) {
        fail(Status::invalid_argument,
             "the conversation is not a JSON object with a list \"messages\"");
    }
    ChatInput input;
    input.size_bytes = json.size();
    for (const Value &message : messages->list()->items) {
        input.messages.push_back(read_message(message, input.messages.size()));
    }
    input.variables = {{"tools", Value(Value::Data(jinja::None{}))},
                       {"documents", Value(Value::Data(jinja::None{}))}};
    for (const auto &[name, value] : whole.dict()->items) {
        if (name == "add_generation_prompt" || name == "bos_token" || name == "eos_token") {
            fail(Status::invalid_argument, "the conversation sets \"%s\", which is not its to set",
                 name.c_str());
        }
        if (name == "date") {
            if (value.text() == nullptr) {
                fail(Status::invalid_argument, "the conversation's date is not a string");
            }
            input.date = parse_date(*value.text(), "the conversation's date");
        } else if (name != "messages") {
            set_member(input.variables, name.c_str(), value);
        }
    }
    return input;
}

std::time_t parse_date(std::string_view text, const char *what) {
    const int year = number(text, 0, 4), month = number(text, text.size() < 7 ? 0 : 5, 2);
    const int day = number(text, text.size() < 10 ? 0 : 8, 2);
    std::tm date{};
    date.tm_year = year - 1900;
    date.tm_mon = month - 1;
    date.tm_mday = day;
    std::tm same = date;
    const std::time_t seconds = timegm(&same); // turns 31 April into 1 May
    if (text.size() != 10 || text[4] != '-' || text[7] != '-' || year < 1 || month < 1 ||
        same.tm_mon != date.tm_mon || same.tm_mday != date.tm_mday) {
        fail(Status::invalid_argument, "%s is '%.40s': expected a date such as 2026-01-02", what,
             std::string(text).c_str());
    }
    return seconds;
}

} // namespace stasis
