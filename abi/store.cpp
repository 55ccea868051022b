// Stores of sessions; see stasis_store.h.
#include "format/store/store.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "abi/cancel.h"
#include "abi/handles.h"
#include "abi/options.h"
#include "abi/saving.h"
#include "abi/store_backend.h"
#include "abi/trace.h"
#include "format/store/collect.h"

namespace stasis::abi {

namespace {

using format::Store;
using format::StorePut;
using format::StorePutOptions;

std::unique_ptr<stasis_store> made(std::string name, std::shared_ptr<format::Backend> backend) {
    auto handle = std::make_unique<stasis_store>();
    handle->name = std::move(name);
    handle->store = std::make_shared<const Store>(std::move(backend));
    return handle;
}

void require_existing(const std::string &path, const stasis_store_options &given) {
    struct stat status {};
    if ((given.flags & STASIS_STORE_EXISTING) != 0 && ::stat(path.c_str(), &status) != 0) {
        fail(Status::not_found, "%s: there is no store", path.c_str());
    }
}

// A path has many spellings: a store is named by one of them.
std::string resolved(const std::string &path) {
    const std::unique_ptr<char, void (*)(void *)> name(::realpath(path.c_str(), nullptr), ::free);
    if (name == nullptr) {
        fail(errno == ENOMEM ? Status::no_memory : Status::io, "%s: cannot look it up: %s",
             path.c_str(), std::strerror(errno));
    }
    return name.get();
}

// A scheme, and the path after it.
std::unique_ptr<stasis_store> open_store(const std::string &uri,
                                         const stasis_store_options &given) {
    require_flags(given.flags, STASIS_STORE_EXISTING);
    if (given.reserved != 0) {
        fail(Status::unsupported, "options.reserved is not 0");
    }
    const size_t colon = uri.find(':');
    const std::string scheme = uri.substr(0, colon);
    const std::string path = colon == std::string::npos ? "" : uri.substr(colon + 1);
    if (colon == std::string::npos || colon == 0 || path.empty()) {
        fail(Status::invalid_argument,
             "uri '%s': expected a scheme, ':' and a path, as in dir:PATH", uri.c_str());
    }
    if (scheme == "dir") {
        require_existing(path, given);
        std::shared_ptr<format::Backend> backend = format::open_directory_backend(path);
        return made("dir:" + resolved(path), std::move(backend));
    }
    if (scheme == "sqlite") {
        require_existing(path, given);
        std::shared_ptr<format::Backend> backend = format::open_sqlite_backend(path);
        return made("sqlite:" + resolved(path), std::move(backend));
    }
    ModuleBackend opened = open_module(scheme, uri, given.flags);
    return made(std::move(opened.name), std::move(opened.backend));
}

// What a call on a store needs.
struct Call {
    const Store &store;
    const stasis_store_call_options given;
    CallWatch call_watch;
    const Watch watch;

    Call(stasis_store *of, const Caller &caller, const stasis_store_call_options *options,
         uint32_t flags)
        : store((require(of, "store"), *of->store)), given(read_struct(options, "options")),
          call_watch(caller, given), watch(call_watch.watch()) {
        require_flags(given.flags, flags);
    }
    bool overwrite() const { return (given.flags & STASIS_STORE_OVERWRITE) != 0; }
};

std::string read_name(const char *name, const char *argument) {
    require(name, argument);
    return name;
}

// What the session knows of this place; nothing yet, if it has not been there.
StoredAs &place_for(stasis_session &session, const stasis_store &store, const std::string &name) {
    for (StoredAs &each : session.stored) {
        if (each.store == store.name && each.name == name) {
            return each;
        }
    }
    StoredAs place;
    place.store = store.name;
    place.name = name;
    return session.stored.emplace_back(std::move(place));
}

void remember(stasis_session &session, StoredAs &place, const Digest &mark,
              std::shared_ptr<const format::Contents> contents, bool repair) {
    for (StoredAs &each : session.stored) {
        each.contents = nullptr;
    }
    place.mark = mark;
    place.attempted.reset();
    place.contents = std::move(contents);
    place.repair = repair;
}

void write_result(const StorePut &put, stasis_store_result *result) {
    if (result != nullptr) {
        stasis_store_result to{};
        to.root = to_abi(put.contents->root.digest);
        to.state = to_abi(put.contents->state.digest);
        to.sequence = put.contents->root.sequence;
        to.bytes_written = put.counts.written;
        to.bytes_shared = put.counts.shared;
        write_struct(to, result, "result");
    }
}

// Runs a put; of a conflict the result says what is stored.
template <typename Put> StorePut with_result(stasis_store_result *result, const Put &put) {
    if (result != nullptr) {
        struct_size(result, sizeof *result, "result"); // refused before anything is written
    }
    try {
        return put();
    } catch (const format::Conflict &conflict) {
        if (result != nullptr) {
            stasis_store_result to{};
            to.root = to_abi(conflict.root);
            to.state = to_abi(conflict.state);
            write_struct(to, result, "result");
        }
        throw;
    }
}

// The place in this store that the session was put to or got from last, or that which it was forked
// from; null: none.
const StoredAs *last_place(const stasis_session &session, const stasis_store &store) {
    for (const StoredAs &each : session.stored) {
        if (each.store == store.name && each.contents != nullptr) {
            return &each;
        }
    }
    return nullptr;
}

void put(stasis_store &store, stasis_session &session, const std::string &name, const Call &call,
         stasis_store_result *result) {
    StoredAs &place = place_for(session, store, name);
    StorePutOptions options;
    options.overwrite = call.overwrite();
    options.expected = place.mark;
    options.attempted = &place.attempted;
    const StoredAs *const last = last_place(session, store);
    // What it was got from lacks something, and would be named again.
    options.repair = place.repair || (last != nullptr && last->repair);
    if (last != nullptr && last != &place) {
        options.lender = last->name;
        options.lender_known = last->contents;
    }
    const SaveChoice choice{call.given.codec, call.given.keep,
                            (call.given.flags & STASIS_STORE_FULL_LOGITS) != 0};
    save_with(*session.session, choice, call.watch,
              [&](const State &state, format::SaveOptions &chosen) {
                  // A fork in the store has the contents of what it was forked from.
                  chosen.known = last != nullptr ? last->contents : nullptr;
                  options.save = chosen;
                  const StorePut put =
                      with_result(result, [&] { return call.store.put(state, name, options); });
                  remember(session, place, put.mark, put.contents, false);
                  write_result(put, result);
              });
}

std::unique_ptr<stasis_session> get(const stasis_store &store, const Caller &caller,
                                    const std::shared_ptr<Model> &model, const std::string &name,
                                    const stasis_load_options &given, const Watch &watch) {
    // Nothing that it reads is removed meanwhile.
    std::unique_ptr<format::BackendLock> lock;
    format::StoredSession opened;
    std::unique_ptr<stasis_session> session =
        load_traced(caller, model, given, watch, [&](const Watch &open_watch) {
            lock = store.store->lock_to_read(open_watch);
            opened = store.store->open(name, nullptr, open_watch, parallel_on(*model));
            return Opened{opened.snapshot, opened.ranges};
        });
    StoredAs &place = place_for(*session, store, name);
    remember(*session, place, opened.mark, opened.snapshot->contents(),
             opened.ranges->lost_payload());
    return session;
}

} // namespace

} // namespace stasis::abi

using namespace stasis::abi;

void stasis_store_options_init(stasis_store_options *options, size_t size) {
    init_struct(options, size);
}

void stasis_store_call_options_init(stasis_store_call_options *options, size_t size) {
    init_struct(options, size);
}

stasis_status stasis_store_open(const char *uri, const stasis_store_options *options,
                                stasis_store **store, stasis_error *error) {
    return enter(error, [&] {
        require_path(uri, "uri");
        require(store, "store");
        *store = open_store(uri, read_struct(options, "options")).release();
    });
}

stasis_status stasis_store_open_backend(const stasis_store_backend *backend, const char *name,
                                        const stasis_store_options *options, stasis_store **store,
                                        stasis_error *error) {
    return enter(error, [&] {
        require_path(name, "name");
        require(store, "store");
        const stasis_store_options given = read_struct(options, "options");
        require_flags(given.flags, 0);
        const std::shared_ptr<HostBackend> held = host_backend(backend);
        *store = made(std::string("host:") + name, held).release();
        held->opened = true;
    });
}

void stasis_store_close(stasis_store *store) {
    delete store;
}

stasis_status stasis_store_put(stasis_store *store, stasis_session *session, const char *name,
                               const stasis_store_call_options *options,
                               stasis_store_result *result, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(session, "session");
        const std::string own = read_name(name, "name");
        const SessionUse use(*session, caller, Use::reads);
        const Call call(store, caller, options, STASIS_STORE_OVERWRITE | STASIS_STORE_FULL_LOGITS);
        put(*store, *session, own, call, result);
    });
}

stasis_status stasis_store_get(stasis_store *store, stasis_model *model, const char *name,
                               const stasis_load_options *options, stasis_session **session,
                               stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(store, "store");
        require(model, "model");
        require(session, "session");
        const std::string own = read_name(name, "name");
        const stasis_load_options given = read_struct(options, "options");
        CallWatch watch(caller, given);
        *session = get(*store, caller, model->model, own, given, watch.watch()).release();
    });
}

stasis_status stasis_store_snapshot(stasis_store *store, const char *name,
                                    const stasis_store_call_options *options,
                                    stasis_snapshot **snapshot, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(snapshot, "snapshot");
        const std::string own = read_name(name, "name");
        const Call call(store, caller, options, 0);
        auto handle = std::make_unique<stasis_snapshot>();
        handle->snapshot = call.store.open(own, nullptr, call.watch).snapshot;
        *snapshot = handle.release();
    });
}

stasis_status stasis_store_list(stasis_store *store, const stasis_store_call_options *options,
                                stasis_stored_session_fn visit, void *visit_user,
                                stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require(reinterpret_cast<const void *>(visit), "visit");
        const Call call(store, caller, options, 0);
        bool stopped = false;
        call.store.list(
            [&](const stasis::format::ListedSession &listed) {
                stasis_stored_session session{};
                session.struct_size = sizeof session;
                session.name = listed.name.c_str();
                session.damage = listed.damage.empty() ? nullptr : listed.damage.c_str();
                session.root = to_abi(listed.root);
                session.state = to_abi(listed.state);
                session.model = to_abi(listed.model);
                session.position = listed.position;
                session.bytes = listed.bytes;
                stopped = caller.lend([&] { return visit(visit_user, &session); }) != 0;
                return !stopped;
            },
            call.watch);
        if (stopped) {
            fail(stasis::Status::stopped, "the callback asked to stop");
        }
    });
}

stasis_status stasis_store_remove(stasis_store *store, const char *name,
                                  const stasis_store_call_options *options, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        const std::string own = read_name(name, "name");
        const Call call(store, caller, options, 0);
        call.store.remove(own, call.watch);
    });
}

stasis_status stasis_store_fork(stasis_store *store, const char *from, const char *to,
                                const stasis_store_call_options *options, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        const std::string source = read_name(from, "from"), target = read_name(to, "to");
        const Call call(store, caller, options, STASIS_STORE_OVERWRITE);
        call.store.fork(source, target, call.overwrite(), call.watch);
    });
}

stasis_status stasis_store_collect(stasis_store *store, const stasis_store_call_options *options,
                                   stasis_store_collected *collected, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        if (collected != nullptr) {
            struct_size(collected, sizeof *collected, "collected");
        }
        const Call call(store, caller, options, 0);
        stasis::format::CollectOptions chosen;
        chosen.watch = call.watch;
        if (call.given.grace_seconds != 0) {
            chosen.grace_seconds = call.given.grace_seconds;
        }
        const stasis::format::Collected found =
            stasis::format::collect(call.store.backend(), chosen);
        if (collected != nullptr) {
            stasis_store_collected to{};
            to.sessions = found.sessions;
            to.objects = found.objects;
            to.bytes = found.bytes;
            to.removed_objects = found.removed;
            to.removed_bytes = found.removed_bytes;
            write_struct(to, collected, "collected");
        }
    });
}

stasis_status stasis_store_import(stasis_store *store, const char *path, const char *name,
                                  const stasis_store_call_options *options,
                                  stasis_store_result *result, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require_path(path, "path");
        const std::string own = read_name(name, "name");
        const Call call(store, caller, options, STASIS_STORE_OVERWRITE);
        const auto snapshot =
            stasis::format::Snapshot::open(path, stasis::system_files(), call.watch.silent());
        StorePutOptions chosen;
        chosen.overwrite = call.overwrite();
        chosen.save.watch = call.watch;
        write_result(with_result(result, [&] { return call.store.import(*snapshot, own, chosen); }),
                     result);
    });
}

stasis_status stasis_store_export(stasis_store *store, const char *name, const char *path,
                                  const stasis_store_call_options *options, stasis_error *error) {
    return enter(error, [&](const Caller &caller) {
        require_path(path, "path");
        const std::string own = read_name(name, "name");
        const Call call(store, caller, options, STASIS_STORE_OVERWRITE);
        const auto lock = call.store.lock_to_read(call.watch.silent());
        const auto snapshot = call.store.open(own, nullptr, call.watch.silent()).snapshot;
        stasis::format::export_snapshot(*snapshot, path, call.overwrite(), call.watch);
    });
}
