// What tests of the store share: states with pages that are objects of their own, and a store in
// memory.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>

#include "format/store/store.h"
#include "memory_backend.h"
#include "sample.h"

namespace stasis::format {

// A page of a group has 32 KiB or more.
inline Shape large_pages(uint64_t position, uint64_t seed = 1, uint64_t common = 0) {
    Shape shape{.position = position, .kv_heads = 2, .head_dim = 64};
    shape.seed = seed;
    shape.common = common;
    return shape;
}

// A stored state, pages and recurrent states included.
inline State whole(const Store &store, const std::string &name) {
    const StoredSession opened = store.open(name);
    State state = opened.snapshot->state();
    opened.snapshot->read_pages(state, {});
    opened.snapshot->read_states(state, {});
    return state;
}

struct MemoryStore {
    std::shared_ptr<MemoryBackend> backend = std::make_shared<MemoryBackend>();
    Store store = Store(backend);

    // As a session that remembers what it put and got.
    StorePut put(const State &state, const std::string &name, const StorePut &before,
                 SaveOptions save = {}) {
        StorePutOptions options;
        save.known = before.contents;
        options.save = save;
        if (before.contents != nullptr) {
            options.expected = before.mark;
        }
        return store.put(state, name, options);
    }
    StorePut put(const State &state, const std::string &name, const SaveOptions &save = {}) {
        StorePutOptions options;
        options.save = save;
        return store.put(state, name, options);
    }
    State get(const std::string &name) const { return whole(store, name); }
};

// The bytes that an export writes.
inline Bytes exported(const Store &store, const std::string &name) {
    const ScratchFolder folder;
    export_snapshot(*store.open(name).snapshot, folder.path("x"), false, {});
    return read_bytes(folder.path("x"));
}

// The status and the message of the error that `call` throws; "" if none.
template <typename Call> std::string error_of(const Call &call) {
    try {
        call();
    } catch (const Error &error) {
        return std::to_string(static_cast<int>(error.status())) + " " + error.what();
    }
    return "";
}

inline std::vector<std::string> keys_of(Backend &backend, const std::string &prefix) {
    std::vector<std::string> keys;
    backend.list(prefix, [&](const ListedObject &object) {
        keys.push_back(object.key);
        return true;
    });
    return keys;
}

} // namespace stasis::format
