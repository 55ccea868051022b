// The session that a request goes on from; see generation.h.
#include "tools/cli/terminal.h"
#include "tools/serve/engine/generation.h"
#include "tools/serve/engine/prefixes.h"
#include "tools/serve/engine/stored.h"

namespace serve {

using command::sized;

std::string Generation::turn_name(const api::Json &conversation) const {
    return "c_" + sha256(model_->identity() + "\n" + conversation.dump());
}

// Returns a session that spares computing. Where the store fails, all is computed.
std::optional<Sessions::Found>
Generation::spared(const std::function<std::optional<Sessions::Found>()> &find) {
    if (store_failed_) {
        return std::nullopt;
    }
    try {
        return find();
    } catch (const api::Refused &refused) {
        if (refused.status != 500) {
            throw;
        }
        store_failed_ = true;
        return std::nullopt;
    }
}

std::optional<Sessions::Found> Generation::find_named(const std::string &name) {
    return spared([&] { return engine_.sessions().take_named(*model_, tenant_, name); });
}

// Finds the longest beginning of the conversation, up to a reply, that is kept.
void Generation::find_by_turns() {
    constexpr int kLookups = 16; // what parts earlier is found by its tokens
    const api::Json &messages = request_.conversation.at("messages");
    int lookups = 0;
    for (size_t count = messages.size(); count-- > 1 && lookups < kLookups;) {
        if (messages[count - 1].value("role", "") != "assistant") {
            continue;
        }
        ++lookups;
        api::Json beginning = request_.conversation;
        beginning["messages"] = api::Json(messages.begin(), messages.begin() + count);
        std::optional<Sessions::Found> found = find_named(turn_name(beginning));
        if (found) {
            first_ = std::move(found->session);
            before_ = found->id;
            return;
        }
    }
}

void Generation::find_previous() {
    const std::string id = id_in(request_.previous, "resp_");
    std::optional<Sessions::Found> found;
    if (!id.empty()) {
        found = engine_.sessions().find(*model_, tenant_, id);
    }
    if (!found) {
        throw api::Refused{404, "previous_response_not_found",
                           "there is no stored response '" + request_.previous + "'",
                           "previous_response_id"};
    }
    first_ = std::move(found->session);
    before_ = found->id;
    const std::string stored = object_text(first_.get(), kConversationData);
    if (stored.empty()) {
        throw api::Refused{400, "invalid_request_error",
                           "'" + request_.previous + "' is not a conversation",
                           "previous_response_id"};
    }
    request_.conversation = api::continued(api::Json::parse(stored), request_.conversation);
    write_conversation();
}

// The session of its last reply may be gone, or another model's: then it is found as any other.
void Generation::find_kept() {
    claim_ = engine_.kept().claim(tenant_, request_.kept);
    kept_ = engine_.kept().find(tenant_, request_.kept);
    request_.conversation = api::continued(kept_.record, request_.conversation);
    if (request_.conversation.at("messages").empty()) {
        throw api::Refused{400, "invalid_request_error",
                           "'input' is missing, and the conversation is empty", "input"};
    }
    write_conversation();
    std::optional<Sessions::Found> found;
    if (kept_.record.value("model", "") == model_->identity()) {
        found = spared(
            [&] { return engine_.sessions().find(*model_, tenant_, kept_.record.at("session")); });
    }
    if (found) {
        first_ = std::move(found->session);
        before_ = found->id;
    } else {
        find_by_turns();
    }
}

void Generation::find_session() {
    write_conversation();
    if (!request_.previous.empty()) {
        find_previous();
    } else if (!request_.kept.empty()) {
        find_kept();
    } else if (is_conversation()) {
        find_by_turns();
    }
    if (!first_) {
        stasis_session *made = nullptr;
        stasis_error error{};
        auto options = sized<stasis_session_options>();
        options.domain = domain_of(tenant_);
        require(stasis_session_create(model_->model(), &options, &made, &error), error);
        first_.reset(made);
        find_by_tokens();
    }
}

// Finds a session that has the longest beginning of the prompt, which is then cut where they part.
void Generation::find_by_tokens() {
    const std::vector<stasis_token> tokens =
        is_conversation() ? lacking_tokens(first_.get()).tokens : prompt_;
    beginnings_ = prefix_names(model_->identity(), tokens);
    for (size_t i = beginnings_.size(); i-- > 0;) {
        std::optional<Sessions::Found> found = find_named(beginnings_[i]);
        if (found) {
            first_ = std::move(found->session);
            return;
        }
    }
}

} // namespace serve
