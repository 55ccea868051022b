// A conversation as a chat template takes it: messages with tool calls and thoughts, definitions of
// functions, switches, the date. Read from JSON, with the rules of transformers'
// apply_chat_template.
#pragma once

#include <ctime>
#include <optional>
#include <string_view>

#include "runtime/text/jinja/value.h"

namespace stasis {

struct ChatInput {
    jinja::List messages;            // dicts
    jinja::Dict variables;           // "tools", "documents" and what the template has of its own
    std::optional<std::time_t> date; // of the conversation; none: the model's
    size_t size_bytes = 0;           // of the JSON
};

// Reads {"messages": [...], "tools": [...], "date": "2026-01-02", ...}; every other member is a
// variable of the template, such as "enable_thinking". Throws Error(invalid_argument).
ChatInput read_chat(std::string_view json);

// Reads "2026-01-02", as midnight in UTC. Throws Error(invalid_argument) naming `what`.
std::time_t parse_date(std::string_view text, const char *what);

} // namespace stasis
