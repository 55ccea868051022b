// Paths and keys; see routes.h.
#include "tools/serve/engine/routes.h"

#include "tools/cli/terminal.h"
#include "tools/serve/api/reply.h"
#include "tools/serve/engine/generation.h"
#include "tools/serve/engine/stored.h"

namespace serve {

using command::sized;

namespace {

constexpr char kJson[] = "application/json";

std::vector<std::string> parts_of(const std::string &path) {
    std::vector<std::string> parts;
    for (size_t at = 1; at <= path.size();) {
        const size_t end = std::min(path.find('/', at), path.size());
        if (end > at) {
            parts.push_back(path.substr(at, end - at));
        }
        at = end + 1;
    }
    return parts;
}

// Returns whether it needs no key.
bool is_open(const http::Request &request, const std::vector<std::string> &parts) {
    return request.method == "GET" && parts.size() == 1 &&
           (parts[0] == "health" || parts[0] == "ready" || parts[0] == "metrics");
}

api::Refused without_key() {
    return {401, "invalid_api_key",
            "this server wants a key that it knows, as 'Authorization: Bearer KEY' or 'x-api-key: "
            "KEY'",
            ""};
}

bool speaks_anthropic(const http::Request &request, const std::vector<std::string> &parts) {
    return (parts.size() > 1 && parts[1] == "messages") ||
           !request.header("anthropic-version").empty();
}

} // namespace

http::Headers refusal_headers(const api::Refused &refused) {
    http::Headers headers = {{"content-type", kJson}};
    if (refused.status == 429 || refused.status == 503) {
        headers.emplace_back("retry-after", "1");
    }
    return headers;
}

std::string query_member(const std::string &query, const std::string &name) {
    for (size_t at = 0; at < query.size();) {
        const size_t end = std::min(query.find('&', at), query.size());
        const std::string member = query.substr(at, end - at);
        if (member.starts_with(name + "=")) {
            return member.substr(name.size() + 1);
        }
        at = end + 1;
    }
    return "";
}

api::Page page_of(const std::string &query) {
    api::Page page;
    page.after = query_member(query, "after");
    page.ascending = query_member(query, "order") == "asc";
    const std::string limit = query_member(query, "limit");
    if (!limit.empty()) {
        const bool number =
            limit.size() < 4 && limit.find_first_not_of("0123456789") == std::string::npos;
        page.limit = number ? static_cast<uint32_t>(std::stoul(limit)) : 0;
    }
    return page;
}

bool Call::is(const char *method, const char *first, const char *second) const {
    const size_t count = second == nullptr ? 2 : 3;
    return request().method == method && parts.size() == count && parts[0] == "v1" &&
           parts[1] == first && (second == nullptr || parts[2] == second);
}

bool Call::anthropic() const {
    return speaks_anthropic(request(), parts);
}

void Call::reply_text(std::string body, const char *type) const {
    exchange->reply(200, {{"content-type", type}}, std::move(body));
}

void Call::reply(const api::Json &body) const {
    reply_text(body.dump(-1, ' ', false, api::Json::error_handler_t::replace), kJson);
}

void Call::refuse(const api::Refused &refused) const {
    exchange->reply(refused.status, refusal_headers(refused),
                    api::error_body(refused, anthropic()));
}

void Call::guarded(const std::function<void()> &answer) const {
    try {
        answer();
    } catch (const api::Refused &refused) {
        refuse(refused);
    } catch (const std::exception &error) {
        refuse({500, "server_error", error.what(), ""});
    }
}

Routes::Routes(Engine &engine, std::optional<http::Keys> keys, http::Metrics &metrics)
    : engine_(engine), keys_(std::move(keys)), metrics_(metrics) {
    measure(engine, metrics);
}

void Routes::handle(const std::shared_ptr<http::Exchange> &exchange) {
    Call call{exchange, kOneTenant, parts_of(exchange->request().path)};
    if (route_open(call)) {
        return;
    }
    if (keys_) {
        const std::optional<std::string> tenant = keys_->tenant(call.request());
        if (!tenant) {
            call.refuse(without_key());
            return;
        }
        call.tenant = *tenant;
    }
    constexpr size_t kLong = size_t{256}
                             << 10; // what takes long to read is not read on this thread
    if (call.request().body.size() > kLong) {
        engine_.workers().post([this, call] { call.guarded([&] { route(call); }); });
    } else {
        call.guarded([&] { route(call); });
    }
}

std::optional<http::Denial> Routes::denial_of(const http::Request &head) const {
    const std::vector<std::string> parts = parts_of(head.path);
    if (!keys_ || is_open(head, parts) || keys_->tenant(head)) {
        return std::nullopt;
    }
    const api::Refused refused = without_key();
    return http::Denial{refused.status,
                        refused.message,
                        {},
                        api::error_body(refused, speaks_anthropic(head, parts))};
}

// Answers what needs no key. False: something else is asked for.
bool Routes::route_open(const Call &call) {
    if (!is_open(call.request(), call.parts)) {
        return false;
    }
    if (call.parts[0] == "health") {
        call.reply({{"status", "ok"}});
    } else if (call.parts[0] == "ready") {
        if (engine_.closing()) {
            call.refuse(refusal(STASIS_CANCELLED, ""));
        } else {
            call.reply({{"status", "ready"}});
        }
    } else {
        call.reply_text(metrics_.render(), "text/plain; version=0.0.4");
    }
    return true;
}

void Routes::route(const Call &call) {
    const std::string &body = call.request().body;
    if (call.is("POST", "chat", "completions")) {
        generate(call, api::read_chat(body));
    } else if (call.is("POST", "completions")) {
        generate(call, api::read_completion(body));
    } else if (call.is("POST", "responses")) {
        generate(call, api::read_response(body));
    } else if (call.is("POST", "messages")) {
        generate(call, api::read_messages(body));
    } else if (call.is("POST", "messages", "count_tokens")) {
        count_tokens(call);
    } else if (call.is("POST", "embeddings")) {
        embed(call);
    } else if (!route_model(call) && !answer_kept(engine_, call) && !answer_stored(engine_, call)) {
        call.refuse({404, "not_found",
                     "there is no " + call.request().method + " " + call.request().path, ""});
    }
}

bool Routes::route_model(const Call &call) {
    std::vector<api::ModelEntry> entries;
    for (const std::unique_ptr<ServedModel> &model : engine_.models()) {
        entries.push_back({model->name(), 0, model->info().context});
    }
    if (call.is("GET", "models")) {
        call.reply_text(api::models_body(entries, call.anthropic()), kJson);
        return true;
    }
    if (call.request().method != "GET" || call.parts.size() != 3 || call.parts[1] != "models") {
        return false;
    }
    const ServedModel &model = engine_.model(call.parts[2]);
    call.reply_text(api::model_body({model.name(), 0, model.info().context}, call.anthropic()),
                    kJson);
    return true;
}

void Routes::generate(const Call &call, api::GenerationRequest request) {
    std::make_shared<Generation>(engine_, call.exchange, std::move(request), call.tenant)->start();
}

void Routes::count_tokens(const Call &call) {
    api::GenerationRequest request = api::read_token_count(call.request().body);
    ServedModel &model = engine_.model(request.model);
    answer_soon(engine_, call, [call, &model, conversation = request.conversation.dump()] {
        stasis_session *made = nullptr;
        stasis_error error{};
        require(stasis_session_create(model.model(), nullptr, &made, &error), error);
        const command::Session session(made);
        size_t count = 0;
        const stasis_status status =
            stasis_session_chat_tokens(made, conversation.data(), conversation.size(),
                                       STASIS_CHAT_REPLY, nullptr, nullptr, 0, &count, &error);
        if (status != STASIS_BUFFER_TOO_SMALL) {
            require(status, error);
        }
        call.reply_text(api::token_count_body(count), kJson);
    });
}

void Routes::embed(const Call &call) {
    api::EmbeddingRequest request = api::read_embedding(call.request().body);
    ServedModel &model = engine_.model(request.model);
    answer_slowly(engine_, call,
                  [call, &model, request = std::move(request)](stasis_cancel *cancel) {
                      call.reply_text(embeddings_of(model, request, cancel), kJson);
                  });
}

} // namespace serve
