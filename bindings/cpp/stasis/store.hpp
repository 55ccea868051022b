// Stasis for C++20: many sessions under names, which hold what they share once. Included by
// stasis.hpp.
#pragma once

#include "stasis/session.hpp"

namespace stasis {

using StoreResult = stasis_store_result;
using StoreCollected = stasis_store_collected;

struct StoreOptions {
    bool existing = false; // open no store that is not there: Error(NotFound)
};

// How a call on a store runs: stasis_store_call_options.
struct StoreCallOptions {
    bool overwrite = false;   // replace what is there, whatever it is
    bool full_logits = false; // of put: store the whole row with the hidden state
    Codec codec = Codec::Default;
    Keep keep = Keep::Full;
    std::chrono::seconds grace{}; // of collect, without locks: younger objects stay; 0: a day
    const Cancel *cancel = nullptr;
    std::chrono::milliseconds timeout{}; // then it ends with Error(Timeout); 0: no limit
    Progress progress = {};              // bytes; of collect objects that are removed
};

// A session in a list.
struct StoredSession {
    std::string name;                  // of a damaged root its key
    std::optional<std::string> damage; // why the root is damaged: then the rest is 0
    Digest root, state, model;
    std::uint64_t position = 0; // tokens in the log
    std::uint64_t bytes = 0;    // that an export writes
};

// What Store::put and import_file throw if something else is there than expected: the status is
// Conflict, root() says what, and state() is the digest of that session: of the one to be put, if a
// put's answer was lost. Nothing: nothing is there.
class Conflict : public Error {
  public:
    Conflict(const std::string &message, const StoreResult &stored)
        : Error(Status::Conflict, message) {
        if (Digest(stored.root) != Digest()) {
            root_ = stored.root;
            state_ = stored.state;
        }
    }
    const std::optional<Digest> &root() const noexcept { return root_; }
    const std::optional<Digest> &state() const noexcept { return state_; }

  private:
    std::optional<Digest> root_, state_;
};

// A directory ("dir:PATH"), a file of SQLite ("sqlite:PATH"), object storage ("s3://...", see
// stasis_store.h) or a backend of the host's that keeps any number of sessions. All functions may
// be called by any number of threads, and any number of processes may use one store: a put replaces
// exactly what its session was put to or got from last, or throws Conflict, so that no turn is
// lost.
class Store {
  public:
    explicit Store(const std::string &uri, const StoreOptions &options = {}) {
        auto given = detail::sized<stasis_store_options>();
        given.flags = options.existing ? STASIS_STORE_EXISTING : 0;
        stasis_store *raw = nullptr;
        const char *own = detail::c_text(uri, "the uri");
        detail::call(
            [&](stasis_error *error) { return stasis_store_open(own, &given, &raw, error); });
        handle_.reset(raw);
    }
    // Opens a store over a host's backend, which is released after the last use. The name is for
    // messages, and tells backends apart: sessions know a store by its name.
    Store(std::shared_ptr<Backend> backend, const std::string &name);

    // ---- Sessions ----
    // Stores a session under a name, whole or not at all. Throws Conflict if something else is
    // there than this session, or the one it was forked from, put or got there last.
    StoreResult put(Session &session, const std::string &name,
                    const StoreCallOptions &options = {});
    // Returns a session that continues a stored one with the same bits, as Session::load does from
    // a file. Pages that the store has lost are computed again.
    Session get(const Model &model, const std::string &name, const LoadOptions &options = {});
    // Opens a stored session for inspection and proof. Pages are read when they are needed: after a
    // put to this name and a collection they may be gone.
    Snapshot snapshot(const std::string &name, const StoreCallOptions &options = {});
    // Returns the sessions; those that come and go meanwhile may be missing.
    std::vector<StoredSession> list(const StoreCallOptions &options = {});
    // Removes a name, also one whose root is damaged.
    void remove(const std::string &name, const StoreCallOptions &options = {}) {
        const char *own = detail::c_text(name, "the name");
        run(options, [&](const auto *given, stasis_error *error) {
            return stasis_store_remove(raw(), own, given, error);
        });
    }
    // Gives a session a second name, under which it goes on by itself.
    void fork(const std::string &from, const std::string &to,
              const StoreCallOptions &options = {}) {
        const char *source = detail::c_text(from, "the name");
        const char *target = detail::c_text(to, "the second name");
        run(options, [&](const auto *given, stasis_error *error) {
            return stasis_store_fork(raw(), source, target, given, error);
        });
    }
    // Removes what no session refers to.
    StoreCollected collect(const StoreCallOptions &options = {}) {
        auto collected = detail::sized<StoreCollected>();
        run(options, [&](const auto *given, stasis_error *error) {
            return stasis_store_collect(raw(), given, &collected, error);
        });
        return collected;
    }

    // ---- Files ----
    // Copies a snapshot file into the store, with the history of its commits. Throws Conflict if
    // the name is there.
    StoreResult import_file(const std::filesystem::path &path, const std::string &name,
                            const StoreCallOptions &options = {});
    // Copies a stored session into a new file.
    void export_file(const std::string &name, const std::filesystem::path &path,
                     const StoreCallOptions &options = {}) {
        const char *own = detail::c_text(name, "the name");
        const char *file = detail::c_text(path.native(), "the path");
        run(options, [&](const auto *given, stasis_error *error) {
            return stasis_store_export(raw(), own, file, given, error);
        });
    }

    // For calls of the C interface; null after a move.
    stasis_store *raw() const noexcept { return handle_.get(); }

  private:
    struct StoreCall : detail::CallWith<StoreCallOptions, stasis_store_call_options> {
        explicit StoreCall(const StoreCallOptions &options) : CallWith(options) {
            raw.flags = (given.overwrite ? STASIS_STORE_OVERWRITE : 0) |
                        (given.full_logits ? STASIS_STORE_FULL_LOGITS : 0);
            raw.codec = static_cast<std::uint32_t>(given.codec);
            raw.keep = static_cast<std::uint32_t>(given.keep);
            if (given.grace.count() < 0) {
                throw Error(Status::InvalidArgument, "grace: expected 0 or more");
            }
            raw.grace_seconds = static_cast<std::uint64_t>(given.grace.count());
        }
    };

    // Throws what a backend's function or a callback has thrown, else Error if the call failed.
    void check(detail::Call &call, stasis_status status) const {
        if (failures_) {
            failures_->rethrow(status, call.error()->message);
        }
        call.check(status);
    }
    template <typename Function> void run(const StoreCallOptions &options, const Function &body) {
        StoreCall call(options);
        check(call, body(&call.raw, call.error()));
    }
    StoreResult written(detail::Call &call, stasis_status status, const StoreResult &result) const {
        if (status == STASIS_CONFLICT) {
            throw Conflict(call.error()->message, result);
        }
        check(call, status);
        return result;
    }

    std::shared_ptr<detail::Failures> failures_; // null: not a host's backend
    detail::Handle<stasis_store, stasis_store_close> handle_;
};

inline Store::Store(std::shared_ptr<Backend> backend, const std::string &name) {
    if (backend == nullptr) {
        throw Error(Status::InvalidArgument, "backend: expected one, not null");
    }
    const char *own = detail::c_text(name, "the name");
    auto held = std::make_unique<detail::HeldBackend>();
    held->backend = std::move(backend);
    const stasis_store_backend table = held->table();
    stasis_store *raw = nullptr;
    detail::call([&](stasis_error *error) {
        return stasis_store_open_backend(&table, own, nullptr, &raw, error);
    });
    failures_ = held->failures;
    static_cast<void>(held.release()); // the library's, until it calls `release`
    handle_.reset(raw);
}

inline StoreResult Store::put(Session &session, const std::string &name,
                              const StoreCallOptions &options) {
    const char *own = detail::c_text(name, "the name");
    StoreCall call(options);
    auto result = detail::sized<StoreResult>();
    const stasis_status status =
        stasis_store_put(raw(), session.raw(), own, &call.raw, &result, call.error());
    session.rethrow_trace();
    return written(call, status, result);
}

inline Session Store::get(const Model &model, const std::string &name, const LoadOptions &options) {
    const char *own = detail::c_text(name, "the name");
    detail::LoadCall call(options);
    Session made;
    made.listener_ = call.listener;
    stasis_session *raw = nullptr;
    const stasis_status status =
        stasis_store_get(this->raw(), model.raw(), own, &call.raw, &raw, call.error());
    made.handle_.reset(raw);
    made.rethrow_trace();
    check(call, status);
    return made;
}

inline Snapshot Store::snapshot(const std::string &name, const StoreCallOptions &options) {
    const char *own = detail::c_text(name, "the name");
    StoreCall call(options);
    stasis_snapshot *raw = nullptr;
    check(call, stasis_store_snapshot(this->raw(), own, &call.raw, &raw, call.error()));
    Snapshot made;
    made.handle_.reset(raw);
    made.failures_ = failures_;
    return made;
}

inline std::vector<StoredSession> Store::list(const StoreCallOptions &options) {
    struct Visit {
        detail::Call &call;
        std::vector<StoredSession> sessions = {};
    };
    StoreCall call(options);
    Visit visit{call};
    const auto hear = [](void *user, const stasis_stored_session *session) {
        auto &own = *static_cast<Visit *>(user);
        return own.call.run([&] {
            StoredSession made{.name = session->name,
                               .damage = std::nullopt,
                               .root = session->root,
                               .state = session->state,
                               .model = session->model,
                               .position = session->position,
                               .bytes = session->bytes};
            if (session->damage != nullptr) {
                made.damage = session->damage;
            }
            own.sessions.push_back(std::move(made));
        });
    };
    check(call, stasis_store_list(raw(), &call.raw, hear, &visit, call.error()));
    return std::move(visit.sessions);
}

inline StoreResult Store::import_file(const std::filesystem::path &path, const std::string &name,
                                      const StoreCallOptions &options) {
    const char *file = detail::c_text(path.native(), "the path");
    const char *own = detail::c_text(name, "the name");
    StoreCall call(options);
    auto result = detail::sized<StoreResult>();
    const stasis_status status =
        stasis_store_import(raw(), file, own, &call.raw, &result, call.error());
    return written(call, status, result);
}

} // namespace stasis
