// The one form of conversations that the readers of all APIs make, so that what a client sends back
// is equal, member by member, to what was stored:
//
//     {"messages": [{"role": "system", "content": TEXT},
//                   {"role": "user", "name": TEXT, "content": TEXT},
//                   {"role": "assistant", "content": TEXT, "reasoning_content": TEXT, "tool_calls":
//                    [{"id": ID, "type": "function", "function": {"name": TEXT, "arguments":
//                    {}}}]},
//                   {"role": "tool", "tool_call_id": ID, "name": TEXT, "content": TEXT}],
//      "tools": [{"type": "function", "function": {"name": TEXT, "description": TEXT,
//                                                  "parameters": {}}}]}
//
// with members in this order, "content" always and always text, and others left out where they are
// empty. Ids are without the prefixes of the APIs. Behind "tools" stand the template's switches.
#pragma once

#include "tools/serve/api/members.h"
#include "tools/serve/api/reply.h"

namespace serve::api {

Json text_message(const char *role, const std::string &content);
Json assistant_message(const std::string &content, const std::string &thoughts,
                       const std::vector<Call> &calls);
Json tool_message(const std::string &id, const std::string &content);

// Returns a content's text: that of a string, or of its parts that are text, each on a line of its
// own. Throws Refused: something else, a part that is no text.
std::string content_text(const Json &content, const std::string &place);

// Returns an id without the prefix that an API puts before it.
std::string bare_id(const std::string &id);

// Returns the arguments of a call that an API gives as text. Throws Refused: no object.
Json read_arguments(const std::string &text, const std::string &place);

// Returns an entry of "tools". `definition` has the members name, description and the schema named
// `schema`. Throws Refused: a name that is no name, a schema that is no object.
Json read_tool(Members &definition, const char *schema);
// Reads the list "tools" of OpenAI's APIs, each of type "function": `nested` in a member of that
// name, as chats have it, or flat, as responses do. Throws Refused.
Json read_tools(Members &body, bool nested);

// Returns whether there is a tool of this name.
bool has_tool(const Json &tools, const std::string &name);

// Sets what a conversation's templates know as effort and thinking. Throws Refused: `effort` is
// none that is known.
void set_effort(Json &switches, const std::string &effort, const std::string &place);

// Adds the members of chat_template_kwargs. Throws Refused: one that is no switch.
void add_switches(Json &switches, const Json *given, const std::string &place);

// Returns the conversation of these parts; gives results of tools the names of their calls.
Json make_conversation(Json messages, Json tools, const Json &switches);

} // namespace serve::api
