// What is asked of /v1/conversations.
#include "tools/serve/engine/routes.h"
#include "tools/serve/engine/stored.h"

namespace serve {

namespace {

void reply_described(const Call &call, const Kept &kept) {
    call.reply({{"id", kept.record.at("id")},
                {"object", "conversation"},
                {"created_at", kept.record.at("created_at")},
                {"metadata", kept.record.at("metadata")}});
}

api::Json or_none(api::Json metadata) {
    return metadata.is_null() ? api::Json::object() : std::move(metadata);
}

void add_items(Engine &engine, const Call &call) {
    api::KeptRequest request = api::read_kept_items(call.request().body);
    const std::string &id = call.parts[2];
    KeptConversations::Claim claim = engine.kept().claim(call.tenant, id);
    Kept kept = engine.kept().find(call.tenant, id);
    api::Json &messages = kept.record["messages"];
    const size_t before = messages.size();
    for (api::Json &message : request.messages) {
        messages.push_back(std::move(message));
    }
    api::give_item_ids(kept.record, api::Json());
    engine.kept().replace(call.tenant, kept);
    claim = nullptr; // before the client hears of it: it may ask again
    call.exchange->reply_changed(200, {{"content-type", "application/json"}},
                                 api::added_items_body(kept.record, before));
}

void remove_item(Engine &engine, const Call &call) {
    const std::string &id = call.parts[2];
    KeptConversations::Claim claim = engine.kept().claim(call.tenant, id);
    Kept kept = engine.kept().find(call.tenant, id);
    api::remove_item(kept.record, call.parts[4]);
    engine.kept().replace(call.tenant, kept);
    claim = nullptr;
    reply_described(call, kept);
}

void answer_conversation(Engine &engine, const Call &call) {
    const std::string &method = call.request().method;
    const std::string &id = call.parts[2];
    if (method == "GET") {
        reply_described(call, engine.kept().find(call.tenant, id));
        return;
    }
    KeptConversations::Claim claim = engine.kept().claim(call.tenant, id);
    if (method == "DELETE") {
        engine.kept().remove(call.tenant, id);
        claim = nullptr;
        call.reply({{"id", id}, {"object", "conversation.deleted"}, {"deleted", true}});
        return;
    }
    api::KeptRequest request = api::read_kept_metadata(call.request().body);
    Kept kept = engine.kept().find(call.tenant, id);
    kept.record["metadata"] = or_none(std::move(request.metadata));
    engine.kept().replace(call.tenant, kept);
    claim = nullptr;
    reply_described(call, kept);
}

void answer_items(Engine &engine, const Call &call) {
    if (call.request().method == "POST") {
        add_items(engine, call);
        return;
    }
    if (call.request().method == "DELETE") {
        remove_item(engine, call);
        return;
    }
    const Kept kept = engine.kept().find(call.tenant, call.parts[2]);
    call.reply_text(call.parts.size() == 5
                        ? api::item_body(kept.record, call.parts[4])
                        : api::input_items_body(kept.record, page_of(call.request().query)),
                    "application/json");
}

// Whether the server knows such a request.
bool is_kept(const Call &call) {
    const std::string &method = call.request().method;
    const size_t count = call.parts.size();
    if (count < 2 || count > 5 || call.parts[0] != "v1" || call.parts[1] != "conversations") {
        return false;
    }
    if (count == 2) {
        return method == "POST";
    }
    if (count == 3) {
        return method == "GET" || method == "POST" || method == "DELETE";
    }
    return call.parts[3] == "items" && (method == "GET" || (method == "POST" && count == 4) ||
                                        (method == "DELETE" && count == 5));
}

} // namespace

bool answer_kept(Engine &engine, const Call &call) {
    if (!is_kept(call)) {
        return false;
    }
    answer_from_store(engine, call, [&engine, call] {
        if (call.parts.size() == 2) {
            api::KeptRequest request = api::read_kept(call.request().body);
            reply_described(call, engine.kept().create(call.tenant, std::move(request.messages),
                                                       or_none(std::move(request.metadata))));
        } else if (call.parts.size() == 3) {
            answer_conversation(engine, call);
        } else {
            answer_items(engine, call);
        }
    });
    return true;
}

} // namespace serve
