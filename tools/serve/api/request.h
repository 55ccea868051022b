// What clients ask for, in one form for all of the server's APIs, and the readers of each API's
// JSON. Must not know HTTP, sessions or threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "abi/stasis.h"

namespace serve::api {

using Json = nlohmann::ordered_json;

// Which API a request came by: its replies and errors have that API's form.
enum class Dialect { chat, completions, responses, messages };

// Why a request is refused. `parameter` is the member that is wrong ("messages[2].content"), or "".
struct Refused {
    int status = 400; // of HTTP
    std::string code; // "invalid_request_error", "model_not_found", "context_length_exceeded", ...
    std::string message;
    std::string parameter;
};

enum class Answer { any, tool, none }; // of tool_choice: what a reply may be

// How a reply must be formed: as stasis_constraint.h.
struct Form {
    uint32_t kind = STASIS_CONSTRAINT_NONE;
    std::string text;
};

struct GenerationRequest {
    Dialect dialect = Dialect::chat;
    std::string model; // as the client named it; may be ""

    // What the reply follows. A conversation in the form of stasis_chat.h: "messages", and where
    // there are any "tools" and the template's switches, in the normal form of conversation.h, so
    // that equal conversations are equal JSON. Null: `prompt` or `tokens`, one of them.
    Json conversation;
    std::string prompt;
    std::vector<stasis_token> tokens;

    // Of responses. With `previous` or `kept` the messages of `conversation` follow those that are
    // stored, as `continued` joins them.
    std::string previous; // previous_response_id
    std::string kept;     // conversation: its id
    bool store = false;   // may be asked for again by its id
    Json echo;            // members that the answer repeats (metadata, temperature, tools, ...)

    // How tokens are drawn; what is not given is as the model's files recommend.
    std::optional<float> temperature, top_p, min_p, repetition_penalty, frequency_penalty,
        presence_penalty;
    std::optional<uint32_t> top_k;
    std::optional<uint64_t> seed;
    std::vector<std::pair<stasis_token, float>> bias;

    std::optional<uint64_t> tokens_max; // of the reply
    std::vector<std::string> stops;
    Form form;
    Answer answer = Answer::any;
    std::string tool;     // with Answer::tool: the one that must be called, or "": any of them
    bool parallel = true; // a reply may call several tools; false: it ends after the first call
    bool log_probabilities = false;
    uint32_t best = 0;          // most likely tokens reported beside each
    uint32_t choices = 1;       // replies, each with the seed `seed + index`
    bool repeat_prompt = false; // completions: "echo"
    bool stream = false;
    bool stream_usage = false; // chat and completions: a last piece with usage
};

struct EmbeddingRequest {
    std::string model;
    std::vector<std::string> texts;                // or
    std::vector<std::vector<stasis_token>> tokens; // of the two one is empty
    bool base64 = false;                           // the vectors as little-endian floats in base64
    std::optional<uint32_t> dimensions;
};

// Of /v1/conversations.
struct KeptRequest {
    Json messages = Json::array(); // in the form of `conversation` above
    Json metadata;                 // null: not given
};

// Return what a body asks for. Throw Refused: the body is no JSON, a member has a wrong type or
// value, or asks for what this server does not do (named, never ignored in silence where it would
// change the reply).
GenerationRequest read_chat(std::string_view body);        // POST /v1/chat/completions
GenerationRequest read_completion(std::string_view body);  // POST /v1/completions
GenerationRequest read_response(std::string_view body);    // POST /v1/responses
GenerationRequest read_messages(std::string_view body);    // POST /v1/messages
GenerationRequest read_token_count(std::string_view body); // POST /v1/messages/count_tokens
EmbeddingRequest read_embedding(std::string_view body);    // POST /v1/embeddings
KeptRequest read_kept(std::string_view body);              // POST /v1/conversations
KeptRequest read_kept_metadata(std::string_view body);     // POST /v1/conversations/{id}
KeptRequest read_kept_items(std::string_view body);        // POST /v1/conversations/{id}/items

// Returns the stored conversation with the messages of the new one behind its own. Tools and
// switches are those of the new one, and so are the instructions: a first message that has the
// member "instructions", which is left out of the stored one.
Json continued(const Json &stored, const Json &conversation);

} // namespace serve::api
