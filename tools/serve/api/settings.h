// What OpenAI's three forms of generation have in common beside the prompt.
#pragma once

#include "tools/serve/api/members.h"

namespace serve::api {

// Sampling settings, with the extensions that other local servers take too (top_k, min_p,
// repetition_penalty), seed and biases.
void read_sampling(Members &body, GenerationRequest &request);

// "stop", or of Anthropic "stop_sequences".
void read_stops(Members &body, const char *name, GenerationRequest &request);

// "model", "stream", "stream_options" and "n".
void read_delivery(Members &body, GenerationRequest &request);

// A schema's Form, from an object with the member "schema" (response_format.json_schema).
Form schema_form(Members &described);

// guided_json, guided_regex, guided_grammar, guided_choice, structured_outputs. Throws Refused:
// several of them, or one beside a form that is set.
void read_guided_forms(Members &body, GenerationRequest &request);

// "tool_choice" as OpenAI writes it; a function's name is under `function` in it, if that is not
// nullptr, else beside its type.
void read_tool_choice(Members &body, const char *function, const Json &tools,
                      GenerationRequest &request);

} // namespace serve::api
