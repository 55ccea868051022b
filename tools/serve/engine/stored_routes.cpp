// What is asked of stored sessions: /v1/responses/{id} and /v1/sessions.
#include <cstring>
#include <exception>

#include "tools/cli/report/page.h"
#include "tools/cli/terminal.h"
#include "tools/serve/api/members.h"
#include "tools/serve/api/reply.h"
#include "tools/serve/engine/routes.h"
#include "tools/serve/engine/spool.h"
#include "tools/serve/engine/stored.h"

namespace serve {

using command::sized;

namespace {

constexpr char kSnapshot[] = "application/vnd.stasis.snapshot";

// A session by its id, of whichever model.
struct Wanted {
    ServedModel *model;
    command::Session session;
    std::string id;
};

Wanted find(Engine &engine, const Call &call, const std::string &prefix) {
    const std::string id = id_in(call.parts[2], prefix);
    if (!id.empty()) {
        for (const std::unique_ptr<ServedModel> &model : engine.models()) {
            auto found = engine.sessions().find(*model, call.tenant, id);
            if (found) {
                return {model.get(), std::move(found->session), found->id};
            }
        }
    }
    throw api::Refused{404, "not_found", "there is no session '" + call.parts[2] + "'", ""};
}

void reply_removed(Engine &engine, const Call &call, const std::string &prefix,
                   const char *object) {
    const Wanted wanted = find(engine, call, prefix);
    // Under its digest it has all names that it was given, under each name those of that time.
    const auto own = engine.sessions().find(*wanted.model, call.tenant, wanted.id);
    const stasis_session *const newest = own ? own->session.get() : wanted.session.get();
    engine.sessions().remove(call.tenant, wanted.id, lines_of(data_of(newest, kNamesData)));
    call.reply({{"id", call.parts[2]}, {"object", object}, {"deleted", true}});
}

void answer_response(Engine &engine, const Call &call) {
    if (call.request().method == "DELETE" && call.parts.size() == 3) {
        reply_removed(engine, call, "resp_", "response");
        return;
    }
    const Wanted wanted = find(engine, call, "resp_");
    const bool items = call.parts.size() == 4;
    const std::string stored =
        object_text(wanted.session.get(), items ? kConversationData : kResponseData);
    if (stored.empty()) {
        throw api::Refused{404, "not_found", "'" + call.parts[2] + "' is no response", ""};
    }
    if (!items) {
        call.reply_text(stored, "application/json");
        return;
    }
    api::Json conversation = {{"messages", api::Json::parse(stored)["messages"]}};
    api::Json &messages = conversation["messages"];
    messages.erase(messages.size() - 1); // the response itself
    call.reply_text(api::input_items_body(conversation, page_of(call.request().query)),
                    "application/json");
}

api::Json described(const Wanted &wanted) {
    stasis_error error{};
    auto info = sized<stasis_session_info>();
    require(stasis_session_get_info(wanted.session.get(), &info, &error), error);
    api::Json body = {{"id", wanted.id},
                      {"object", "session"},
                      {"model", wanted.model->name()},
                      {"position", info.position},
                      {"kv_bytes", info.kv_bytes}};
    const std::string conversation = object_text(wanted.session.get(), kConversationData);
    if (!conversation.empty()) {
        body["conversation"] = api::Json::parse(conversation);
    }
    return body;
}

// Returns the session as a file. What lies on the disk needs neither pages nor memory.
std::shared_ptr<Spool> exported(const Wanted &wanted, stasis_cancel *cancel) {
    struct Into {
        Spool &spool;
        std::exception_ptr failure;
    };
    const auto spool = std::make_shared<Spool>();
    Into into{*spool, nullptr};
    auto sink = sized<stasis_sink>();
    sink.user = &into;
    sink.write = [](void *user, const void *data, size_t size) -> int32_t {
        auto &to = *static_cast<Into *>(user);
        try {
            to.spool.write({static_cast<const char *>(data), size});
            return 0;
        } catch (...) {
            to.failure = std::current_exception();
            return 1;
        }
    };
    auto options = sized<stasis_save_options>();
    options.cancel = cancel;
    stasis_error error{};
    const stasis_status status =
        stasis_session_write(wanted.session.get(), &sink, &options, &error);
    if (into.failure) {
        std::rethrow_exception(into.failure);
    }
    require(status, error);
    spool->finish();
    return spool;
}

// The bytes of a body, read in turn.
struct Body {
    const std::string &bytes;
    size_t at = 0;

    stasis_source source() {
        auto source = sized<stasis_source>();
        source.user = this;
        source.read = [](void *user, void *data, size_t size) -> int64_t {
            auto &body = *static_cast<Body *>(user);
            const size_t count = std::min(size, body.bytes.size() - body.at);
            std::memcpy(data, body.bytes.data() + body.at, count);
            body.at += count;
            return static_cast<int64_t>(count);
        };
        return source;
    }
};

command::Snapshot opened(const std::string &bytes) {
    Body body{bytes};
    const stasis_source source = body.source();
    stasis_snapshot *snapshot = nullptr;
    stasis_error error{};
    require(stasis_snapshot_open_source(&source, &snapshot, &error), error);
    return command::Snapshot(snapshot);
}

// Computes the whole log again and compares it with what the snapshot holds.
stasis_verify_report verified(const ServedModel &model, const command::Snapshot &snapshot,
                              stasis_cancel *cancel) {
    stasis_error error{};
    auto options = sized<stasis_verify_options>();
    options.cancel = cancel;
    auto report = sized<stasis_verify_report>();
    const stasis_status status =
        stasis_snapshot_verify(snapshot.get(), model.model(), &options, &report, &error);
    if (status != STASIS_DIVERGED) {
        require(status, error);
    }
    return report;
}

// A file of unknown origin must be what the model computes: its pages may serve others.
void import(Engine &engine, const Call &call, stasis_cancel *cancel) {
    const std::string &bytes = call.request().body;
    ServedModel &model = engine.model(query_member(call.request().query, "model"));
    Body body{bytes};
    const stasis_source source = body.source();
    stasis_session *made = nullptr;
    stasis_error error{};
    auto session_options = sized<stasis_session_options>();
    session_options.domain = domain_of(call.tenant);
    auto options = sized<stasis_load_options>();
    options.session = &session_options;
    options.cancel = cancel;
    const stasis_status status =
        stasis_session_read(model.model(), &source, &options, &made, &error);
    if (status == STASIS_CORRUPT || status == STASIS_MODEL_MISMATCH || status == STASIS_VERSION) {
        throw api::Refused{400, "invalid_snapshot", error.message, ""};
    }
    require(status, error);
    command::Session session(made);
    check_data(made);
    const stasis_verify_report report = verified(model, opened(bytes), cancel);
    if (report.verified == 0) {
        throw api::Refused{
            400, "diverged",
            std::string("the file is not what the model computes: ") + report.message, ""};
    }
    const std::string id = engine.sessions().keep(model, call.tenant, std::move(session), "", {});
    call.reply({{"id", id}, {"object", "session"}, {"model", model.name()}});
}

// The page of `stasis report` of what an export is.
std::shared_ptr<Spool> reported(const Wanted &wanted, stasis_cancel *cancel) {
    const std::shared_ptr<Spool> file = exported(wanted, cancel);
    const command::report::Shown shown =
        command::report::shown_of(wanted.id + ".stasis", file->snapshot());
    const auto page = std::make_shared<Spool>();
    command::report::write_page(shown, nullptr, "",
                                [&](std::string_view text) { page->write(text); });
    page->finish();
    return page;
}

void rewind(Engine &engine, const Call &call, stasis_cancel *cancel) {
    Wanted wanted = find(engine, call, "");
    const api::Json body = api::parse_body(call.request().body);
    if (!body.is_object() || !body.contains("position") || !body["position"].is_number_unsigned()) {
        throw api::Refused{400, "invalid_request_error", "a position is missing: {\"position\": N}",
                           "position"};
    }
    auto options = sized<stasis_run_options>();
    options.cancel = cancel;
    stasis_error error{};
    require(stasis_session_rewind(wanted.session.get(), body["position"].get<uint64_t>(),
                                  STASIS_REWIND_RECOMPUTE, &options, &error),
            error);
    for (const char *name : {kConversationData, kResponseData}) { // of what is no more
        clear_object(wanted.session.get(), name);
    }
    clear_data(wanted.session.get(), kNamesData);
    const std::string id = engine.sessions().keep(*wanted.model, call.tenant,
                                                  std::move(wanted.session), wanted.id, {});
    call.reply({{"id", id}, {"object", "session"}, {"position", body["position"]}});
}

void verify(Engine &engine, const Call &call, stasis_cancel *cancel) {
    const Wanted wanted = find(engine, call, "");
    const std::shared_ptr<Spool> file = exported(wanted, cancel);
    const stasis_verify_report report = verified(*wanted.model, file->snapshot(), cancel);
    api::Json body = {{"id", wanted.id},
                      {"verified", report.verified != 0},
                      {"positions", report.positions},
                      {"drawn", report.drawn}};
    if (report.verified == 0) {
        body["message"] = report.message;
    }
    call.reply(body);
}

// What takes no longer than a session in memory or in the store takes to be had.
void answer_session(Engine &engine, const Call &call) {
    const std::string &method = call.request().method;
    const std::string action = call.parts.size() == 4 ? call.parts[3] : "";
    if (method == "DELETE" && action.empty()) {
        reply_removed(engine, call, "", "session");
    } else { // also to fork it: a state has one name, and may go on twice
        call.reply(described(find(engine, call, "")));
    }
}

bool is_slow(const Call &call) {
    const std::string &last = call.parts.back();
    return last == "verify" || last == "rewind" || last == "export" || last == "report" ||
           (call.request().method == "POST" && call.parts.size() == 2);
}

void answer_slow_session(Engine &engine, const Call &call, stasis_cancel *cancel) {
    const std::string &last = call.parts.back();
    if (call.parts.size() == 2) {
        import(engine, call, cancel);
    } else if (last == "export") {
        send_spooled(engine, call, kSnapshot,
                     [&] { return exported(find(engine, call, ""), cancel); });
    } else if (last == "report") {
        send_spooled(engine, call, "text/html; charset=utf-8",
                     [&] { return reported(find(engine, call, ""), cancel); });
    } else if (last == "rewind") {
        rewind(engine, call, cancel);
    } else {
        verify(engine, call, cancel);
    }
}

bool knows(const Call &call) {
    const std::string &method = call.request().method;
    const size_t count = call.parts.size();
    if (count < 2 || count > 4 || call.parts[0] != "v1") {
        return false;
    }
    const std::string action = count == 4 ? call.parts[3] : "";
    if (call.parts[1] == "responses") {
        return (count == 3 && (method == "GET" || method == "DELETE")) ||
               (method == "GET" && action == "input_items");
    }
    if (call.parts[1] != "sessions") {
        return false;
    }
    return (count == 2 && method == "POST") ||
           (count == 3 && (method == "GET" || method == "DELETE")) ||
           (method == "GET" && (action == "export" || action == "report")) ||
           (method == "POST" && (action == "fork" || action == "rewind" || action == "verify"));
}

} // namespace

bool answer_stored(Engine &engine, const Call &call) {
    if (!knows(call)) {
        return false;
    }
    if (is_slow(call)) {
        answer_slowly(engine, call, [&engine, call](stasis_cancel *cancel) {
            answer_slow_session(engine, call, cancel);
        });
        return true;
    }
    answer_from_store(engine, call, [&engine, call] {
        if (call.parts[1] == "responses") {
            answer_response(engine, call);
        } else {
            answer_session(engine, call);
        }
    });
    return true;
}

} // namespace serve
