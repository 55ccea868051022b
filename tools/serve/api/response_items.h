// Items of /v1/responses: in what it is sent, in its answers, and in lists of what an answer
// followed.
#pragma once

#include "tools/serve/api/pieces.h"

namespace serve::api {

// Items as they are when they are whole. `status`: "completed", "incomplete", "in_progress".
Json thoughts_item(const std::string &id, const std::string &text, const char *status);
Json message_item(const std::string &id, const std::string &text, const Json &likelihoods,
                  const char *status);
Json call_item(const std::string &id, const Call &call, const char *status);

// Adds the messages that a list of items makes, and to `ids`, where it is given, for each of them
// a list of the ids of its items, which then must have them. Throws Refused.
void read_input_items(const Json &items, const std::string &place, Json &messages,
                      Json *ids = nullptr);

// Parts of their content.
Json thoughts_part(const std::string &text);
Json message_part(const std::string &text, const Json &likelihoods);

} // namespace serve::api
