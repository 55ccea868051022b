// POST /v1/completions: what clients ask for.
#include "tools/serve/api/settings.h"

namespace serve::api {

namespace {

// One prompt: a string, a list of one, a list of tokens, or a list of one such list.
void read_prompt(Members &body, GenerationRequest &request) {
    const Json *prompt = &body.needed("prompt");
    if (prompt->is_array() && !prompt->empty() && !(*prompt)[0].is_number()) {
        if (prompt->size() > 1) {
            refuse("prompt", "'prompt' has several prompts; only one a request is supported",
                   "unsupported_value");
        }
        prompt = &(*prompt)[0];
    }
    if (prompt->is_string()) {
        request.prompt = prompt->get<std::string>();
    } else {
        request.tokens = read_tokens(*prompt, "prompt");
    }
}

} // namespace

GenerationRequest read_completion(std::string_view text) {
    const Json parsed = parse_body(text);
    Members body(parsed, "");
    GenerationRequest request;
    request.dialect = Dialect::completions;
    read_delivery(body, request);
    read_sampling(body, request);
    read_stops(body, "stop", request);
    read_guided_forms(body, request);
    read_prompt(body, request);
    // The API's own default. 0 is for clients that want a prompt back.
    request.tokens_max = body.integer("max_tokens", 0, INT32_MAX).value_or(16);
    if (const auto best = body.integer("logprobs", 0, 20)) {
        request.log_probabilities = true;
        request.best = static_cast<uint32_t>(*best);
    }
    request.repeat_prompt = body.flag("echo").value_or(false);
    if (request.repeat_prompt && !request.tokens.empty()) {
        refuse("echo", "'echo' needs a prompt that is text", "unsupported_value");
    }
    if (request.repeat_prompt && request.log_probabilities) {
        refuse("echo", "'echo' together with 'logprobs' is not supported", "unsupported_value");
    }
    if (const auto best_of = body.integer("best_of", 1, 128);
        best_of && *best_of != request.choices) {
        refuse("best_of", "'best_of' other than 'n' is not supported", "unsupported_value");
    }
    if (body.text("suffix").value_or("") != "") {
        body.unsupported({"suffix"});
    }
    body.ignore({"user"});
    body.refuse_others();
    return request;
}

} // namespace serve::api
