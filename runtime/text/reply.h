// Reads a model's reply as a structured message: thought, content, tool calls. The text may end
// anywhere: what could still become something else is held back. Knows text only.
#pragma once

#include <string>
#include <string_view>

#include "runtime/text/jinja/value.h"

namespace stasis {

// How a family writes the calls of tools.
enum class CallStyle {
    none,
    json,    // <tool_call>{"name": ..., "arguments": ...}</tool_call>: Qwen, Hermes
    tagged,  // <tool_call><function=f><parameter=x>...: newer models of Qwen
    whole,   // the reply is {"name": ..., "parameters": ...}: Llama 3
    mistral, // [TOOL_CALLS] and a list, or name[ARGS]{...}
    gemma,   // <|tool_call>call:f{x:<|"|>...<|"|>}<tool_call|>: Gemma 4
    harmony, // channels: gpt-oss
};

struct ReplyFormat {
    CallStyle calls = CallStyle::none;
    std::string think_open, think_close; // empty: none; harmony has channels instead
};

// Finds the format by the markers that a template contains.
ReplyFormat reply_format(std::string_view jinja);

// Returns the message: "role", "reasoning_content" and "tool_calls" where there are any, "content".
// `prompt` is the generation prompt, which may have opened a thought; `text` the reply with the
// markers of special tokens, without the token that ended it; both well-formed UTF-8. Until
// `complete`, content and thought only grow as the text does, and a call is returned when it has
// ended. Text that is no valid call stays in the content, and so do calls behind 64 of such texts.
// `tools` are the definitions, of which the tagged style needs the types; may be undefined.
jinja::Value parse_reply(const ReplyFormat &format, std::string_view prompt, std::string_view text,
                         bool complete, const jinja::Value &tools);

// Returns the end of the JSON value that begins at `at` with '{' or '['; npos if it does not end or
// is nested deeper than 64.
size_t json_end(std::string_view text, size_t at);
// Reads the arguments of a call of Gemma 4, with their braces. Returns undefined if they are not
// valid.
jinja::Value read_gemma_arguments(std::string_view text);

} // namespace stasis
