// Replies in the form of each API: one body, or the pieces of a stream of server-sent events. Must
// not know HTTP, sessions or threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tools/serve/api/request.h"

namespace serve::api {

struct Call {
    std::string id; // as call_id() makes it; writers put "call_" or "toolu_" before it
    std::string name;
    Json arguments; // an object
};

// Returns the id of a reply's call `index`: nine letters and digits, as Mistral's templates insist
// on, which depend on nothing but the arguments. `conversation` is what the reply follows, all of
// it; another text that determines the request may stand for it.
std::string call_id(const Json &conversation, uint32_t choice, size_t index);

// A token with its log-probability, and the most likely ones at its position.
struct Likelihood {
    std::string text; // bytes of the token, perhaps not UTF-8
    stasis_token token = 0;
    float log_probability = 0;
    std::vector<Likelihood> best; // without `best` of their own
};

// A reply as far as it has come. It only grows: texts by what is put behind them, lists by entries.
struct Reply {
    std::string thoughts, content;
    std::vector<Call> calls;
    std::vector<Likelihood> likelihoods; // of the content's tokens, if asked for
};

// Returns the indices of the tokens that have a byte of the reply's content, in their order.
// `tokens` are all of the reply, with the markers of special ones: neither those of thoughts, calls
// and of what stands around them nor what ended the reply are among them. Of a reply that grows
// they become more, behind those that were returned.
std::vector<size_t> visible_tokens(const std::vector<Likelihood> &tokens, const Reply &reply);

enum class Finish { stop, stop_string, length, calls, left };

struct Usage {
    uint64_t prompt = 0; // tokens in all, the stored ones among them
    uint64_t cached = 0; // of them not computed for this request
    uint64_t reply = 0;
    uint64_t thoughts = 0; // of `reply`, if known
};

struct Outcome {
    Finish finish = Finish::stop;
    std::string stop_string; // with Finish::stop_string
    Usage usage;
    std::string id; // digest of the session after the reply, 64 hexadecimal digits
};

// What is known before the first token.
struct Start {
    std::string id;      // of this request, without a prefix: unique, or the digest if known
    std::string model;   // as the server names it
    int64_t created = 0; // seconds since 1970
    uint64_t prompt_tokens = 0;
};

// Writes one reply. `begin`, `grow` and `end` return what is to be sent then, which may be nothing;
// without `stream` in the request all but `end` return nothing. Replies of several choices are
// told apart by `choice`; `grow` and `end` may interleave between them, and the last `end` returns
// what closes all. `fail` ends a stream that has begun with an error in the API's own form.
class Writer {
  public:
    virtual ~Writer() = default;
    virtual std::string begin(const Start &start) = 0;
    virtual std::string grow(uint32_t choice, const Reply &so_far) = 0;
    virtual std::string end(uint32_t choice, const Reply &whole, const Outcome &outcome) = 0;
    virtual std::string fail(const Refused &error) = 0;
    // What a client may wait for in silence: a comment or event that keeps the connection alive.
    virtual std::string ping() const = 0;
};

// The request must outlive the writer.
std::unique_ptr<Writer> make_writer(const GenerationRequest &request);

struct ModelEntry {
    std::string id;
    int64_t created = 0;
    uint64_t context = 0;
};

// Returns the id that the answer to a request of /v1/responses has: "resp_" and the session's
// digest, or, in a stream, the request's id, for clients refuse an answer whose id is not that of
// the first event.
std::string response_id(const GenerationRequest &request, const Start &start,
                        const Outcome &outcome);

// Bodies in the form of the API; `anthropic`: that of /v1/messages.
std::string error_body(const Refused &error, bool anthropic);
std::string models_body(const std::vector<ModelEntry> &models, bool anthropic);
std::string model_body(const ModelEntry &model, bool anthropic);
std::string token_count_body(uint64_t tokens);
std::string embeddings_body(const EmbeddingRequest &request, const std::string &model,
                            const std::vector<std::vector<float>> &vectors, uint64_t tokens);

// Returns the conversation with the reply as its last message, as it is stored and rendered again.
// It is the conversation that a reader returns when a client sends the reply back in full.
Json with_reply(Json conversation, const Reply &reply);

// Which of a list's items are asked for: GET /v1/responses/{id}/input_items?after=&limit=&order=
struct Page {
    std::string after;      // the id of the item before, or ""
    uint32_t limit = 20;    // 1 to 100
    bool ascending = false; // order=asc; else the newest first
};

// Of the record of a kept conversation (kept.h). Gives the items of its messages ids, where they
// have none: "ids", a list for each message, and "messages_made", so that no id comes twice. The
// last message's are those of an answer's `output`, if it has the same items. Null: none.
void give_item_ids(Json &record, const Json &output);
// Removes an item: the messages are then those that a client would make of the items that are left,
// but that each thought has a message of its own. The items keep their ids, and the record names no
// session. Throws Refused: it has no such item.
void remove_item(Json &record, const std::string &id);

// Returns the items of a stored conversation's messages, without its instructions. Throws Refused:
// a limit out of range, or no item has the id `after`.
std::string input_items_body(const Json &conversation, const Page &page);
// The same of the messages from index `from` on, all of them in their order.
std::string added_items_body(const Json &conversation, size_t from);
// Returns the item with the id. Throws Refused: there is none.
std::string item_body(const Json &conversation, const std::string &id);

} // namespace serve::api
