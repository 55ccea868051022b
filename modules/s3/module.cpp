// The module's entry, and the table of functions over Objects: the only file that catches.
#include <curl/curl.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "modules/s3/objects.h"

namespace stasis_s3 {

namespace {

struct Store {
    Host host;
    Objects objects;

    Store(const Settings &settings, const Host &given) : host(given), objects(settings, given) {}
};

// Runs a function of the table: every exception ends here, and is explained.
template <typename Body> stasis_status guarded(const Host &host, const Body &body) noexcept {
    const char *why = "s3: an allocation failed";
    try {
        return body();
    } catch (const Failure &failure) {
        host.explain(failure.what());
        return failure.status();
    } catch (const std::bad_alloc &) {
        host.explain(why);
        return STASIS_NO_MEMORY;
    } catch (const std::exception &other) {
        host.explain(other.what());
        return STASIS_INTERNAL;
    }
}

template <typename Body> stasis_status call(void *user, const char *key, const Body &body) {
    auto &store = *static_cast<Store *>(user);
    return guarded(store.host, [&]() -> stasis_status {
        if (!is_key(key)) {
            fail(STASIS_INVALID_ARGUMENT, "'%.200s' is no key of a store", key);
        }
        return body(store.objects);
    });
}

stasis_status size_of(void *user, const char *key, uint64_t *size) {
    return call(user, key, [&](Objects &objects) {
        const std::optional<uint64_t> found = objects.size(key);
        *size = found.value_or(0);
        return found ? STASIS_OK : STASIS_NOT_FOUND;
    });
}

stasis_status read(void *user, const char *key, uint64_t offset, void *data, size_t length) {
    return call(user, key, [&](Objects &objects) {
        return objects.read(key, offset, {static_cast<uint8_t *>(data), length}) ? STASIS_OK
                                                                                 : STASIS_NOT_FOUND;
    });
}

stasis_status put(void *user, const char *key, const void *data, size_t length) {
    return call(user, key, [&](Objects &objects) {
        objects.put(key, {static_cast<const uint8_t *>(data), length});
        return STASIS_OK;
    });
}

stasis_status replace(void *user, const char *key, const void *data, size_t length) {
    return call(user, key, [&](Objects &objects) {
        objects.replace(key, {static_cast<const uint8_t *>(data), length});
        return STASIS_OK;
    });
}

stasis_status get_root(void *user, const char *key, void *data, size_t capacity, size_t *length,
                       char *mark) {
    return call(user, key, [&](Objects &objects) {
        const std::optional<Root> root = objects.get_root(key);
        if (!root) {
            return STASIS_NOT_FOUND;
        }
        *length = root->bytes.size();
        if (root->bytes.size() <= capacity) {
            root->bytes.copy(static_cast<char *>(data), root->bytes.size());
            std::memcpy(mark, root->mark.c_str(), root->mark.size() + 1);
        }
        return STASIS_OK;
    });
}

stasis_status swap(void *user, const char *key, const char *mark, const void *data, size_t length,
                   char *new_mark) {
    return call(user, key, [&](Objects &objects) {
        if (data == nullptr && mark != nullptr) {
            return objects.remove_root(key, mark) ? STASIS_OK : STASIS_CONFLICT;
        }
        const auto swapped =
            objects.swap(key, mark != nullptr ? std::optional<std::string>(mark) : std::nullopt,
                         {static_cast<const uint8_t *>(data), length});
        if (!swapped) {
            return STASIS_CONFLICT;
        }
        std::memcpy(new_mark, swapped->c_str(), swapped->size() + 1);
        return STASIS_OK;
    });
}

stasis_status list(void *user, const char *prefix, stasis_store_key_fn visit, void *visit_user) {
    auto &store = *static_cast<Store *>(user);
    return guarded(store.host, [&]() -> stasis_status {
        store.objects.list(prefix, [&](const std::string &key, uint64_t bytes, uint64_t age) {
            return visit(visit_user, key.c_str(), bytes, age) == 0;
        });
        return STASIS_OK;
    });
}

stasis_status remove(void *user, const char *key) {
    return call(user, key, [&](Objects &objects) {
        objects.remove(key);
        return STASIS_OK;
    });
}

void release(void *user) {
    delete static_cast<Store *>(user);
}

const char *variable(const char *name) {
    return std::getenv(name);
}

} // namespace

} // namespace stasis_s3

extern "C" __attribute__((visibility("default"))) stasis_status
stasis_store_module_1(const stasis_store_module_request *request, stasis_store_backend *backend,
                      char *name, size_t name_capacity) {
    using namespace stasis_s3;
    const Host host{request->look, request->explain};
    return guarded(host, [&]() -> stasis_status {
        static std::once_flag once; // its end is the process's: connections may be open until then
        static CURLcode begun = CURLE_FAILED_INIT;
        std::call_once(once, [] { begun = curl_global_init(CURL_GLOBAL_DEFAULT); });
        if (begun != CURLE_OK) {
            fail(STASIS_IO, "s3: libcurl cannot begin");
        }
        const Settings settings = read_settings(request->uri, variable);
        if (settings.name().size() >= name_capacity) {
            fail(STASIS_INVALID_ARGUMENT, "uri: too long");
        }
        auto store = std::make_unique<Store>(settings, host);
        store->objects.open((request->flags & STASIS_STORE_EXISTING) != 0);
        std::strcpy(name, settings.name().c_str());
        backend->size = size_of;
        backend->read = read;
        backend->put = put;
        backend->get_root = get_root;
        backend->swap = swap;
        backend->list = list;
        backend->remove = remove;
        backend->release = release;
        if (backend->struct_size > offsetof(stasis_store_backend, replace)) {
            backend->replace = replace;
        }
        backend->user = store.release();
        return STASIS_OK;
    });
}
