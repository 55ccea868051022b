// Requests for the example server, with prompts, settings and ends of their own, and their replies.
// The same model, number and seed give the same requests, so that runs can be compared.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/cli/handles.h"

namespace serve {

struct Request {
    uint64_t arrival_step = 0;
    std::vector<stasis_token> prompt;
    stasis_sampling sampling{};
    uint64_t tokens_max = 0;
    std::vector<stasis_token> stop_tokens; // besides the model's end tokens
    std::vector<std::string> stop_strings;
    uint64_t leaves_after = 0; // tokens after which its user leaves; 0: the user stays
};

enum class End { none, length, token, string, left, failed };

struct Reply {
    End end = End::none;
    std::string failure;
    std::vector<stasis_token> tokens;
    std::string text; // without the stop string or stop token
    stasis_digest digest{};
    uint64_t admitted_step = 0, first_token_step = 0, end_step = 0; // in passes
    uint64_t longest_wait = 0; // from one token to the next, in passes
};

std::vector<Request> make_requests(const stasis_model *model, size_t count, uint32_t seed);

// Returns the reply of a request that has the model to itself, by append and generate. Throws
// Failure.
Reply reply_alone(stasis_model *model, const Request &request);

} // namespace serve
