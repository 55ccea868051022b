// Which request is answered by what: paths, keys, and the calls that are no replies of a model.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/serve/api/reply.h"
#include "tools/serve/engine/engine.h"
#include "tools/serve/http/keys.h"
#include "tools/serve/http/metrics.h"
#include "tools/serve/http/server.h"

namespace serve {

// A request, whose it is, and the parts of its path: {"v1", "responses", "resp_..."}.
struct Call {
    std::shared_ptr<http::Exchange> exchange;
    std::string tenant;
    std::vector<std::string> parts;

    const http::Request &request() const { return exchange->request(); }
    bool is(const char *method, const char *first, const char *second = nullptr) const;
    bool anthropic() const;
    void reply(const api::Json &body) const;
    void reply_text(std::string body, const char *type) const;
    void refuse(const api::Refused &refused) const;
    // Calls, and refuses with what it throws.
    void guarded(const std::function<void()> &answer) const;
};

class Routes {
  public:
    // Without `keys`, requests need none, and all are of one tenant.
    Routes(Engine &engine, std::optional<http::Keys> keys, http::Metrics &metrics);

    // Answers a request; returns at once. The server's handler.
    void handle(const std::shared_ptr<http::Exchange> &exchange);
    // Refuses a request without a key before its body has come. The server's gate.
    std::optional<http::Denial> denial_of(const http::Request &head) const;

  private:
    bool route_open(const Call &call);
    void route(const Call &call);
    bool route_model(const Call &call);
    void generate(const Call &call, api::GenerationRequest request);
    void embed(const Call &call);
    void count_tokens(const Call &call);

    Engine &engine_;
    const std::optional<http::Keys> keys_;
    http::Metrics &metrics_;
};

// Answers on a worker what takes no longer than a text of the request; from the store, what waits
// for it. Both throw api::Refused: the server is ending, or, the latter, as many run already as
// may.
void answer_soon(Engine &engine, const Call &call, std::function<void()> answer);
void answer_from_store(Engine &engine, const Call &call, std::function<void()> answer);
// Answers on a slow worker what may take minutes, with a handle that is cancelled when the client
// leaves and when the server ends. Throws api::Refused: too much waits, or the server is ending.
void answer_slowly(Engine &engine, const Call &call, std::function<void(stasis_cancel *)> answer);
// Returns the headers of an answer that refuses: of one that is worth asking again, when.
http::Headers refusal_headers(const api::Refused &refused);
// Returns the value of a member of a query "a=b&c=d", or "". Escapes are not read: no value that
// is known has any.
std::string query_member(const std::string &query, const std::string &name);
// Returns what a query says of a list of items.
api::Page page_of(const std::string &query);

// Answers /v1/conversations, on a worker. False: the path is none of these.
bool answer_kept(Engine &engine, const Call &call);
// Answers /v1/responses/{id} and /v1/sessions, on a worker. False: the path is none of these.
bool answer_stored(Engine &engine, const Call &call);
// Returns the body of POST /v1/embeddings. Throws api::Refused.
std::string embeddings_of(const ServedModel &model, const api::EmbeddingRequest &request,
                          stasis_cancel *cancel);
// Adds what the engine counts to GET /metrics.
void measure(Engine &engine, http::Metrics &metrics);

} // namespace serve
