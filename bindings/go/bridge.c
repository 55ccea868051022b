/* See bridge.h. Go's exported functions know no const. */
#include "bridge.h"

#include "_cgo_export.h"

int32_t stasis_go_progress(void *user, uint64_t done, uint64_t total) {
    return goProgress(user, done, total);
}

int32_t stasis_go_logits(void *user, uint64_t position, const float *logits, size_t count) {
    return goLogits(user, position, (float *)logits, count);
}

int32_t stasis_go_generated(void *user, const stasis_generated *generated) {
    return goGenerated(user, (stasis_generated *)generated);
}

int32_t stasis_go_write(void *user, const void *data, size_t size_bytes) {
    return goWrite(user, (void *)data, size_bytes);
}

int64_t stasis_go_read(void *user, void *data, size_t size_bytes) {
    return goRead(user, data, size_bytes);
}

int64_t stasis_go_file_size(void *user, const char *name) {
    return goFileSize(user, (char *)name);
}

int64_t stasis_go_file_read(void *user, const char *name, uint64_t offset, void *data,
                            size_t size_bytes) {
    return goFileRead(user, (char *)name, offset, data, size_bytes);
}

int32_t stasis_go_stored(void *user, const stasis_stored_session *session) {
    return goStored(user, (stasis_stored_session *)session);
}

static stasis_status backend_size(void *user, const char *key, uint64_t *size) {
    return goBackendSize(user, (char *)key, size);
}

static stasis_status backend_read(void *user, const char *key, uint64_t offset, void *data,
                                  size_t length) {
    return goBackendRead(user, (char *)key, offset, data, length);
}

static stasis_status backend_put(void *user, const char *key, const void *data, size_t length) {
    return goBackendPut(user, (char *)key, (void *)data, length);
}

static stasis_status backend_get_root(void *user, const char *key, void *data, size_t capacity,
                                      size_t *length, char *mark) {
    return goBackendGetRoot(user, (char *)key, data, capacity, length, mark);
}

static stasis_status backend_swap(void *user, const char *key, const char *mark, const void *data,
                                  size_t length, char *new_mark) {
    return goBackendSwap(user, (char *)key, (char *)mark, (void *)data, length, new_mark);
}

static stasis_status backend_list(void *user, const char *prefix, stasis_store_key_fn visit,
                                  void *visit_user) {
    return goBackendList(user, (char *)prefix, visit, visit_user);
}

static stasis_status backend_remove(void *user, const char *key) {
    return goBackendRemove(user, (char *)key);
}

static stasis_status backend_lock(void *user, int32_t collect, void **lock) {
    return goBackendLock(user, collect, lock);
}

static void backend_unlock(void *user, void *lock) {
    goBackendUnlock(user, lock);
}

static void backend_release(void *user) {
    goBackendRelease(user);
}

stasis_store_backend stasis_go_backend(void *user, int32_t locks) {
    stasis_store_backend backend = {sizeof backend, 0, user};
    backend.size = backend_size;
    backend.read = backend_read;
    backend.put = backend_put;
    backend.get_root = backend_get_root;
    backend.swap = backend_swap;
    backend.list = backend_list;
    backend.remove = backend_remove;
    if (locks) {
        backend.lock = backend_lock;
        backend.unlock = backend_unlock;
    }
    backend.release = backend_release;
    return backend;
}

int32_t stasis_go_visit(stasis_store_key_fn visit, void *user, const char *key, uint64_t bytes,
                        uint64_t age_seconds) {
    return visit(user, key, bytes, age_seconds);
}
