// Failing calls on stores, in directories.
#include "tests/abi/stored.h"
#include "tests/failures/trial.h"

namespace failures {

using namespace abi_test;

namespace {

// A stored session, and one that goes on from it.
struct Kept {
    Folder folder;
    std::string uri = "dir:" + folder.file("store");
    std::string file = folder.file("f.stasis"), exported = folder.file("g.stasis");
    Store store = open_store(uri);
    Session session;
    stasis_model *model;

    explicit Kept(stasis_model *of) : session(session_of(of, some_tokens(40))), model(of) {
        must_put(store.get(), session.get(), "s");
        must_put(store.get(), fork(session.get()).get(), "other");
        REQUIRE(save(session.get(), file) == STASIS_OK);
        append(session.get(), some_tokens(30, 2));
    }
    // What is stored under a name; "" if nothing is.
    std::string stored(const std::string &name) const {
        stasis_error error;
        Session got;
        const stasis_status status = try_get(store.get(), model, name, got, error);
        REQUIRE_MESSAGE((status == STASIS_OK || status == STASIS_NOT_FOUND), error.message);
        return status == STASIS_OK ? outcome_of(got.get()) : "";
    }
};

using Shared = std::shared_ptr<Kept>;

// A call whose answer was lost may be made again.
stasis_store_call_options overwriting() {
    auto options = sized<stasis_store_call_options>();
    options.flags = STASIS_STORE_OVERWRITE;
    return options;
}

// A call that changes what is stored under a name: after a failure it is what it was, or, where
// the answer of the last operation was lost, what the call was to make of it.
Row changing(const char *function, const char *name,
             std::function<stasis_status(const Kept &, stasis_error *)> call) {
    return {function, "", Needs::warm_model, kGemma, [=](stasis_model *model) {
                const auto kept = std::make_shared<Kept>(model);
                const std::string before = kept->stored(name);
                return Trial{[=](stasis_error *error) { return call(*kept, error); },
                             [=] {
                                 const std::string now = kept->stored(name);
                                 CHECK((now == before || now == outcome_of(kept->session.get()) ||
                                        now == kept->stored("s") || now.empty()));
                                 CHECK(!kept->stored("s").empty());
                             },
                             [=] { return kept->stored(name) + kept->stored("s"); }};
            }};
}

struct OpenedStore {
    Folder folder;
    std::string uri = "dir:" + folder.file("store");
    HostObjects host;
    stasis_store_backend backend = host.table(false);
    Store store; // gone before the host's objects
};

Row opening(const char *function, bool hosted) {
    return {function, "", Needs::nothing, nullptr, [=](stasis_model *) {
                const auto opened = std::make_shared<OpenedStore>();
                return Trial{[=](stasis_error *error) {
                                 stasis_store *made = nullptr;
                                 const stasis_status status =
                                     hosted ? stasis_store_open_backend(&opened->backend, "m",
                                                                        nullptr, &made, error)
                                            : stasis_store_open(opened->uri.c_str(), nullptr, &made,
                                                                error);
                                 CHECK((status == STASIS_OK) == (made != nullptr));
                                 opened->store.reset(made);
                                 return status;
                             },
                             [=] { CHECK(opened->host.released == 0); },
                             [=] { return std::to_string(names_in(opened->store.get()).size()); }};
            }};
}

Row getting() {
    return {"stasis_store_get", "", Needs::warm_model, kGemma, [](stasis_model *model) {
                const auto kept = std::make_shared<Kept>(model);
                const auto out = std::make_shared<Session>();
                return Trial{[=](stasis_error *error) {
                                 stasis_session *made = nullptr;
                                 const stasis_status status = stasis_store_get(
                                     kept->store.get(), model, "s", nullptr, &made, error);
                                 CHECK((status == STASIS_OK) == (made != nullptr));
                                 out->reset(made);
                                 return status;
                             },
                             [] {}, [=] { return outcome_of(out->get()); }};
            }};
}

Row inspecting() {
    return {"stasis_store_snapshot", "", Needs::warm_model, kGemma, [](stasis_model *model) {
                const auto kept = std::make_shared<Kept>(model);
                const auto out = std::make_shared<Snapshot>();
                return Trial{
                    [=](stasis_error *error) {
                        stasis_snapshot *made = nullptr;
                        const stasis_status status =
                            stasis_store_snapshot(kept->store.get(), "s", nullptr, &made, error);
                        CHECK((status == STASIS_OK) == (made != nullptr));
                        out->reset(made);
                        return status;
                    },
                    [] {},
                    [=] {
                        auto info = sized<stasis_snapshot_info>();
                        REQUIRE(stasis_snapshot_get_info(out->get(), &info, nullptr) == STASIS_OK);
                        return hex(&info, sizeof info);
                    }};
            }};
}

Row listing() {
    return {"stasis_store_list", "", Needs::warm_model, kGemma, [](stasis_model *model) {
                const auto kept = std::make_shared<Kept>(model);
                const auto out = std::make_shared<std::string>();
                out->reserve(4096); // taken before the call
                // A root that was cut short is listed as damaged: a host looks again.
                const auto list = [=](stasis_error *error) {
                    out->clear();
                    return stasis_store_list(
                        kept->store.get(), nullptr,
                        [](void *user, const stasis_stored_session *session) {
                            static_cast<std::string *>(user)->append(
                                session->damage == nullptr ? session->name : "damaged");
                            return int32_t{0};
                        },
                        out.get(), error);
                };
                return Trial{[=](stasis_error *error) {
                                 const stasis_status status = list(error);
                                 const bool again = status == STASIS_OK &&
                                                    out->find("damaged") != std::string::npos;
                                 return again ? list(error) : status;
                             },
                             [] {}, [=] { return *out; }};
            }};
}

} // namespace

std::vector<Row> store_rows() {
    return {
        opening("stasis_store_open", false),
        opening("stasis_store_open_backend", true),
        changing("stasis_store_put", "s",
                 [](const Kept &kept, stasis_error *error) {
                     return stasis_store_put(kept.store.get(), kept.session.get(), "s", nullptr,
                                             nullptr, error);
                 }),
        getting(),
        inspecting(),
        listing(),
        // What was cut short looks like another's: a host looks again. What is gone is removed.
        changing("stasis_store_remove", "other",
                 [](const Kept &kept, stasis_error *error) {
                     stasis_status status =
                         stasis_store_remove(kept.store.get(), "other", nullptr, error);
                     if (status == STASIS_CONFLICT) {
                         status = stasis_store_remove(kept.store.get(), "other", nullptr, error);
                     }
                     return status == STASIS_NOT_FOUND ? STASIS_OK : status;
                 }),
        changing("stasis_store_fork", "new",
                 [](const Kept &kept, stasis_error *error) {
                     const stasis_store_call_options options = overwriting();
                     return stasis_store_fork(kept.store.get(), "s", "new", &options, error);
                 }),
        changing("stasis_store_collect", "s",
                 [](const Kept &kept, stasis_error *error) {
                     return stasis_store_collect(kept.store.get(), nullptr, nullptr, error);
                 }),
        changing("stasis_store_import", "new",
                 [](const Kept &kept, stasis_error *error) {
                     const stasis_store_call_options options = overwriting();
                     return stasis_store_import(kept.store.get(), kept.file.c_str(), "new",
                                                &options, nullptr, error);
                 }),
        changing("stasis_store_export", "s",
                 [](const Kept &kept, stasis_error *error) {
                     const stasis_store_call_options options = overwriting();
                     return stasis_store_export(kept.store.get(), "s", kept.exported.c_str(),
                                                &options, error);
                 }),
    };
}

} // namespace failures
