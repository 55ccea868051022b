// Sessions in memory and in the store; see sessions.h.
#include "tools/serve/engine/sessions.h"

#include <iterator>

#include "tools/cli/terminal.h"
#include "tools/serve/engine/stored.h"

namespace serve {

std::string digest_of(const stasis_session *session) {
    stasis_digest digest;
    stasis_error error{};
    require(stasis_session_digest(session, &digest, &error), error);
    return command::hex(digest);
}

namespace {

uint64_t bytes_of(const stasis_session *session) {
    auto info = command::sized<stasis_session_info>();
    stasis_error error{};
    require(stasis_session_get_info(session, &info, &error), error);
    return info.kv_bytes;
}

command::Session fork_of(const stasis_session *session) {
    stasis_session *copy = nullptr;
    stasis_error error{};
    require(stasis_session_fork(session, &copy, &error), error);
    return command::Session(copy);
}

} // namespace

Sessions::Sessions(Store store, size_t live_max, uint64_t live_bytes_max)
    : store_(std::move(store)), live_max_(live_max), live_bytes_max_(live_bytes_max) {}

// With the lock held.
void Sessions::forget(std::list<Live>::iterator live) {
    const std::string tenant = live->key.substr(0, live->key.rfind('/') + 1);
    if (live->key == tenant + live->id) { // its names name nothing here any more
        std::erase_if(names_, [&](const auto &name) {
            return name.second.id == live->id && name.first.starts_with(tenant);
        });
    }
    live_bytes_ -= live->bytes;
    by_key_.erase(live->key);
    live_.erase(live);
}

std::string Sessions::key(const std::string &tenant, const std::string &id) const {
    return tenant + "/" + id;
}

std::mutex &Sessions::keeping(const std::string &key) {
    return keeping_[std::hash<std::string>()(key) % std::size(keeping_)];
}

command::Session Sessions::fork_live(const ServedModel &model, const std::string &key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = by_key_.find(key);
    if (found == by_key_.end() || found->second->model != &model) {
        return nullptr;
    }
    live_.splice(live_.begin(), live_, found->second);
    return fork_of(found->second->session.get());
}

// Null: there is none, or it is another model's.
command::Session Sessions::get(const ServedModel &model, const std::string &tenant,
                               const std::string &name, Damaged damaged) {
    if (!store_) {
        return nullptr;
    }
    auto session = command::sized<stasis_session_options>();
    session.domain = domain_of(tenant);
    auto options = command::sized<stasis_load_options>();
    options.session = &session;
    options.flags = STASIS_LOAD_SKIP_KNOWN; // a conversation's turns, and others over one prompt
    stasis_session *got = nullptr;
    stasis_error error{};
    const stasis_status status = stasis_store_get(
        store_.get(), model.model(), key(tenant, name).c_str(), &options, &got, &error);
    if (status == STASIS_NOT_FOUND || status == STASIS_MODEL_MISMATCH ||
        status == STASIS_INVALID_ARGUMENT) {
        return nullptr;
    }
    if (damaged == Damaged::is_none && (status == STASIS_CORRUPT || status == STASIS_DIVERGED)) {
        command::say(error.message);
        return nullptr;
    }
    require(status, error);
    return command::Session(got);
}

command::Session Sessions::take(const ServedModel &model, const std::string &tenant,
                                const std::string &id, Damaged damaged) {
    command::Session session = fork_live(model, key(tenant, id));
    if (!session) {
        session = get(model, tenant, id, damaged);
        // A put that was interrupted may have left the session before it under this name.
        if (session && digest_of(session.get()) != id) {
            session = nullptr;
        }
    }
    return session;
}

// A copy of one in memory by a further name.
std::optional<Sessions::Found>
Sessions::take_live(const ServedModel &model, const std::string &tenant, const std::string &name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto named = names_.find(key(tenant, name));
    const auto found =
        by_key_.find(named == names_.end() ? key(tenant, name) : key(tenant, named->second.id));
    if (found == by_key_.end() || found->second->model != &model) {
        return std::nullopt;
    }
    live_.splice(live_.begin(), live_, found->second);
    const Live &live = *found->second;
    return Found{fork_of((named == names_.end() ? live.session : named->second.session).get()),
                 live.id};
}

std::optional<Sessions::Found> Sessions::find(const ServedModel &model, const std::string &tenant,
                                              const std::string &id) {
    if (id.size() != 2 * sizeof(stasis_digest)) {
        return take_named(model, tenant, kRequestName + id);
    }
    command::Session session = take(model, tenant, id, Damaged::is_an_error);
    return session ? std::optional(Found{std::move(session), id}) : std::nullopt;
}

std::optional<Sessions::Found>
Sessions::take_named(const ServedModel &model, const std::string &tenant, const std::string &name) {
    std::optional<Found> found = take_live(model, tenant, name);
    if (found) {
        return found;
    }
    command::Session session = get(model, tenant, name, Damaged::is_an_error);
    if (!session) {
        return std::nullopt;
    }
    const std::string id = digest_of(session.get());
    Live got{key(tenant, name), id, &model, fork_of(session.get()), bytes_of(session.get())};
    const std::lock_guard<std::mutex> keeping(this->keeping(key(tenant, id)));
    if (stored_id(got.key) == id) { // not removed meanwhile
        const std::lock_guard<std::mutex> lock(mutex_);
        hold(std::move(got));
    }
    return Found{std::move(session), id};
}

// With the lock held: has it in memory, and drops what is too much.
void Sessions::hold(Live session) {
    const auto known = by_key_.find(session.key);
    if (known != by_key_.end()) { // its names stay
        live_bytes_ -= known->second->bytes;
        live_.erase(known->second);
    }
    live_bytes_ += session.bytes;
    live_.push_front(std::move(session));
    by_key_[live_.front().key] = live_.begin();
    while (live_.size() > live_max_ || live_bytes_ > live_bytes_max_) {
        forget(std::prev(live_.end()));
    }
}

// The session before is the beginning of this one, so that only what follows is written.
void Sessions::put(stasis_session *session, const std::string &key, const std::string &before) {
    stasis_store_call_options options;
    stasis_store_call_options_init(&options, sizeof options);
    stasis_error error{};
    if (!before.empty()) { // it may have been removed: then all is written
        stasis_store_fork(store_.get(), before.c_str(), key.c_str(), &options, &error);
    }
    options.flags = STASIS_STORE_OVERWRITE;
    require(stasis_store_put(store_.get(), session, key.c_str(), &options, nullptr, &error), error);
}

std::string Sessions::keep(const ServedModel &model, const std::string &tenant,
                           command::Session session, const std::string &before,
                           const std::vector<std::string> &names) {
    const std::string id = digest_of(session.get());
    const std::string own = key(tenant, id);
    const uint64_t bytes = bytes_of(session.get());
    const std::lock_guard<std::mutex> keeping(this->keeping(own));
    // What is damaged is replaced by what was just computed.
    if (const command::Session kept = take(model, tenant, id, Damaged::is_none)) {
        merge_data(kept.get(), session.get());
        remove_names(tenant, id, cut_names(session.get()));
    }
    if (store_) {
        put(session.get(), own, before.empty() || before == id ? "" : key(tenant, before));
        for (const std::string &name : names) {
            stasis_store_call_options options;
            stasis_store_call_options_init(&options, sizeof options);
            options.flags = STASIS_STORE_OVERWRITE;
            stasis_error error{};
            const auto name_it = [&] {
                return stasis_store_fork(store_.get(), own.c_str(), key(tenant, name).c_str(),
                                         &options, &error);
            };
            stasis_status status = name_it();
            if (status == STASIS_NOT_FOUND) { // another request has removed it meanwhile
                put(session.get(), own, "");
                status = name_it();
            }
            require(status, error);
        }
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    ++puts_;
    const std::shared_ptr<stasis_session> kept = std::move(session);
    hold({own, id, &model, kept, bytes});
    for (const std::string &name : names) {
        if (by_key_.count(own) != 0) {
            name_live(key(tenant, name), {id, kept, ++named_});
        }
    }
    return id;
}

// With the lock held. Each name holds a session of its own, with its last pages: requests that give
// one state ever new names must not fill the memory.
void Sessions::name_live(const std::string &name, Named named) {
    constexpr size_t kMost = 8; // names of a session in memory
    const std::string tenant = name.substr(0, name.rfind('/') + 1);
    names_[name] = named;
    auto oldest = names_.end();
    size_t count = 0;
    for (auto each = names_.begin(); each != names_.end(); ++each) {
        if (each->second.id == named.id && each->first.starts_with(tenant)) {
            ++count;
            if (oldest == names_.end() || each->second.at < oldest->second.at) {
                oldest = each;
            }
        }
    }
    if (count > kMost) {
        names_.erase(oldest);
    }
}

void Sessions::add_names(const std::string &tenant, const std::string &id,
                         const std::vector<std::string> &names) {
    const std::lock_guard<std::mutex> keeping(this->keeping(key(tenant, id)));
    for (const std::string &name : names) {
        if (store_) { // CONFLICT: another session has it, which serves as well
            stasis_error error{};
            const stasis_status status = stasis_store_fork(
                store_.get(), key(tenant, id).c_str(), key(tenant, name).c_str(), nullptr, &error);
            if (status != STASIS_OK) {
                if (status != STASIS_CONFLICT && status != STASIS_NOT_FOUND) {
                    require(status, error);
                }
                continue;
            }
        }
        const std::lock_guard<std::mutex> lock(mutex_);
        const auto found = by_key_.find(key(tenant, id));
        if (found != by_key_.end() && names_.count(key(tenant, name)) == 0) {
            name_live(key(tenant, name), {id, found->second->session, ++named_});
        }
    }
}

// Returns the digest of what is stored there, without its pages; "": nothing is.
std::string Sessions::stored_id(const std::string &key) {
    stasis_snapshot *opened = nullptr;
    stasis_error error{};
    const stasis_status status =
        stasis_store_snapshot(store_.get(), key.c_str(), nullptr, &opened, &error);
    if (status == STASIS_NOT_FOUND) {
        return "";
    }
    require(status, error);
    const command::Snapshot snapshot(opened);
    auto info = command::sized<stasis_snapshot_info>();
    require(stasis_snapshot_get_info(snapshot.get(), &info, &error), error);
    return command::hex(info.digest);
}

// Returns whether it was there.
bool Sessions::remove_name(const std::string &key) {
    stasis_error error{};
    const stasis_status status = stasis_store_remove(store_.get(), key.c_str(), nullptr, &error);
    if (status != STASIS_NOT_FOUND) {
        require(status, error);
    }
    return status == STASIS_OK;
}

// Removes from the store those of the names that name the session, and no other by now.
void Sessions::remove_names(const std::string &tenant, const std::string &id,
                            const std::vector<std::string> &names) {
    for (const std::string &name : names) {
        if (store_ && stored_id(key(tenant, name)) == id) {
            remove_name(key(tenant, name));
        }
    }
}

bool Sessions::remove(const std::string &tenant, const std::string &id,
                      const std::vector<std::string> &names) {
    const std::string own = key(tenant, id);
    const std::lock_guard<std::mutex> keeping(this->keeping(own));
    remove_names(tenant, id, names);
    bool found = store_ && remove_name(own);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto each = live_.begin(); each != live_.end();) {
        const auto live = each++;
        if (live->id == id && live->key.starts_with(tenant + "/")) {
            forget(live);
            found = true;
        }
    }
    return found;
}

bool Sessions::drop_oldest() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (live_.empty()) {
        return false;
    }
    forget(std::prev(live_.end()));
    return true;
}

size_t Sessions::live() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return live_.size();
}

uint64_t Sessions::puts() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return puts_;
}

} // namespace serve
