// Short forms of the calls on stores. Knows the public header.
#pragma once

#include <map>
#include <mutex>

#include "tests/abi/fixture.h"

namespace abi_test {

using Store = std::unique_ptr<stasis_store, Releaser<stasis_store_close>>;

inline Store open_store(const std::string &uri) {
    stasis_store *store = nullptr;
    stasis_error error;
    const stasis_status status = stasis_store_open(uri.c_str(), nullptr, &store, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return Store(store);
}

struct Put {
    stasis_status status = STASIS_OK;
    stasis_store_result result = sized<stasis_store_result>();
    stasis_error error{};
};

inline Put put(stasis_store *store, stasis_session *session, const std::string &name,
               uint32_t flags = 0, uint32_t keep = STASIS_KEEP_FULL, uint32_t codec = 0) {
    auto options = sized<stasis_store_call_options>();
    options.flags = flags;
    options.keep = keep;
    options.codec = codec;
    Put done;
    done.status =
        stasis_store_put(store, session, name.c_str(), &options, &done.result, &done.error);
    return done;
}

inline Put must_put(stasis_store *store, stasis_session *session, const std::string &name,
                    uint32_t flags = 0, uint32_t keep = STASIS_KEEP_FULL, uint32_t codec = 0) {
    const Put done = put(store, session, name, flags, keep, codec);
    REQUIRE_MESSAGE(done.status == STASIS_OK, done.error.message);
    return done;
}

inline stasis_status try_get(stasis_store *store, stasis_model *model, const std::string &name,
                             Session &session, stasis_error &error, uint32_t flags = 0) {
    auto options = sized<stasis_load_options>();
    options.flags = flags;
    stasis_session *made = nullptr;
    const stasis_status status =
        stasis_store_get(store, model, name.c_str(), &options, &made, &error);
    CHECK((status == STASIS_OK) == (made != nullptr));
    session.reset(made);
    return status;
}

inline Session get(stasis_store *store, stasis_model *model, const std::string &name) {
    Session session;
    stasis_error error;
    const stasis_status status = try_get(store, model, name, session, error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return session;
}

inline Snapshot snapshot_of(stasis_store *store, const std::string &name) {
    stasis_snapshot *snapshot = nullptr;
    stasis_error error;
    const stasis_status status =
        stasis_store_snapshot(store, name.c_str(), nullptr, &snapshot, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return Snapshot(snapshot);
}

inline stasis_store_collected collect(stasis_store *store, uint64_t grace_seconds = 0) {
    auto options = sized<stasis_store_call_options>();
    options.grace_seconds = grace_seconds;
    auto collected = sized<stasis_store_collected>();
    stasis_error error;
    const stasis_status status = stasis_store_collect(store, &options, &collected, &error);
    REQUIRE_MESSAGE(status == STASIS_OK, error.message);
    return collected;
}

inline std::vector<std::string> names_in(stasis_store *store) {
    std::vector<std::string> names;
    REQUIRE(stasis_store_list(
                store, nullptr,
                [](void *user, const stasis_stored_session *session) -> int32_t {
                    CHECK(session->damage == nullptr);
                    static_cast<std::vector<std::string> *>(user)->push_back(session->name);
                    return 0;
                },
                &names, nullptr) == STASIS_OK);
    return names;
}

// A backend of a host: objects in memory, with ages or with locks that count themselves.
struct HostObjects {
    struct Object {
        std::string bytes;
        uint64_t since = 0;
    };
    std::mutex mutex;
    std::map<std::string, Object> objects;
    uint64_t now = 0, marks = 0, calls = 0, fail_at = 0;
    std::map<std::string, uint64_t> marked;
    int locks = 0, released = 0, removed = 0, replaced = 0;
    bool replaces = false; // its table has a function for it

    stasis_status begin() { return ++calls == fail_at ? STASIS_DEVICE : STASIS_OK; }
    stasis_store_backend table(bool locked);
    Store open(bool locked = false) {
        const stasis_store_backend backend = table(locked);
        stasis_store *store = nullptr;
        stasis_error error;
        const stasis_status status =
            stasis_store_open_backend(&backend, "memory", nullptr, &store, &error);
        REQUIRE_MESSAGE(status == STASIS_OK, error.message);
        return Store(store);
    }
};

inline stasis_status host_size(void *user, const char *key, uint64_t *size) {
    auto &self = *static_cast<HostObjects *>(user);
    const std::lock_guard lock(self.mutex);
    const auto found = self.objects.find(key);
    *size = found == self.objects.end() ? 0 : found->second.bytes.size();
    const stasis_status status = self.begin();
    return status != STASIS_OK || found != self.objects.end() ? status : STASIS_NOT_FOUND;
}

inline stasis_status host_read(void *user, const char *key, uint64_t offset, void *data,
                               size_t length) {
    auto &self = *static_cast<HostObjects *>(user);
    const std::lock_guard lock(self.mutex);
    const auto found = self.objects.find(key);
    const stasis_status status = self.begin();
    if (status != STASIS_OK || found == self.objects.end() ||
        offset + length > found->second.bytes.size()) {
        return status != STASIS_OK ? status : STASIS_NOT_FOUND;
    }
    found->second.bytes.copy(static_cast<char *>(data), length, offset);
    return status;
}

inline stasis_status host_put(void *user, const char *key, const void *data, size_t length) {
    auto &self = *static_cast<HostObjects *>(user);
    const std::lock_guard lock(self.mutex);
    const stasis_status status = self.begin();
    if (status == STASIS_OK) {
        HostObjects::Object &object = self.objects[key];
        object.bytes = object.bytes.empty() ? std::string(static_cast<const char *>(data), length)
                                            : object.bytes;
        object.since = self.now;
    }
    return status;
}

inline stasis_status host_get_root(void *user, const char *key, void *data, size_t capacity,
                                   size_t *length, char *mark) {
    auto &self = *static_cast<HostObjects *>(user);
    const std::lock_guard lock(self.mutex);
    const auto found = self.objects.find(key);
    const stasis_status status = self.begin();
    if (status != STASIS_OK || found == self.objects.end()) {
        return status != STASIS_OK ? status : STASIS_NOT_FOUND;
    }
    *length = found->second.bytes.size();
    if (*length <= capacity) {
        found->second.bytes.copy(static_cast<char *>(data), *length);
        std::strcpy(mark, std::to_string(self.marked[key]).c_str());
    }
    return status;
}

inline stasis_status host_swap(void *user, const char *key, const char *mark, const void *data,
                               size_t length, char *made) {
    auto &self = *static_cast<HostObjects *>(user);
    const std::lock_guard lock(self.mutex);
    const stasis_status status = self.begin();
    if (status != STASIS_OK) {
        return status;
    }
    const auto found = self.objects.find(key);
    const bool same = mark == nullptr
                          ? found == self.objects.end()
                          : found != self.objects.end() && std::to_string(self.marked[key]) == mark;
    if (!same) {
        return STASIS_CONFLICT;
    }
    if (data == nullptr) {
        self.objects.erase(found);
        return STASIS_OK;
    }
    self.objects[key] = {std::string(static_cast<const char *>(data), length), self.now};
    self.marked[key] = ++self.marks;
    std::strcpy(made, std::to_string(self.marks).c_str());
    return STASIS_OK;
}

inline stasis_status host_list(void *user, const char *prefix, stasis_store_key_fn visit,
                               void *visit_user) {
    auto &self = *static_cast<HostObjects *>(user);
    std::vector<std::pair<std::string, HostObjects::Object>> listed;
    {
        const std::lock_guard lock(self.mutex);
        const stasis_status status = self.begin();
        if (status != STASIS_OK) {
            return status;
        }
        for (const auto &[key, object] : self.objects) {
            if (key.starts_with(prefix)) {
                listed.emplace_back(key, object);
            }
        }
    }
    for (const auto &[key, object] : listed) {
        if (visit(visit_user, key.c_str(), object.bytes.size(), self.now - object.since) != 0) {
            break;
        }
    }
    return STASIS_OK;
}

inline stasis_status host_remove(void *user, const char *key) {
    auto &self = *static_cast<HostObjects *>(user);
    const std::lock_guard lock(self.mutex);
    const stasis_status status = self.begin();
    if (status == STASIS_OK) {
        self.objects.erase(key);
        self.removed += 1;
    }
    return status;
}

inline stasis_status host_replace(void *user, const char *key, const void *data, size_t length) {
    auto &self = *static_cast<HostObjects *>(user);
    const std::lock_guard lock(self.mutex);
    const stasis_status status = self.begin();
    if (status == STASIS_OK) {
        self.objects[key] = {std::string(static_cast<const char *>(data), length), self.now};
        self.replaced += 1;
    }
    return status;
}

inline stasis_status host_lock(void *user, int32_t, void **lock) {
    auto &self = *static_cast<HostObjects *>(user);
    const std::lock_guard held(self.mutex);
    const stasis_status status = self.begin();
    self.locks += status == STASIS_OK ? 1 : 0;
    *lock = user;
    return status;
}

inline void host_unlock(void *user, void *lock) {
    auto &self = *static_cast<HostObjects *>(user);
    const std::lock_guard held(self.mutex);
    CHECK(lock == user);
    self.locks -= 1;
}

inline stasis_store_backend HostObjects::table(bool locked) {
    auto backend = sized<stasis_store_backend>();
    backend.user = this;
    backend.size = host_size;
    backend.read = host_read;
    backend.put = host_put;
    backend.get_root = host_get_root;
    backend.swap = host_swap;
    backend.list = host_list;
    backend.remove = host_remove;
    if (locked) {
        backend.lock = host_lock;
        backend.unlock = host_unlock;
    }
    backend.release = [](void *user) { static_cast<HostObjects *>(user)->released += 1; };
    backend.replace = replaces ? host_replace : nullptr;
    return backend;
}

} // namespace abi_test
