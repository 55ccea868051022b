/* Callbacks as stasis.h declares them, each of which calls the Go function of that name in
 * callbacks.go. `user` points to the number that finds the Go call again. */
#ifndef STASIS_GO_BRIDGE_H
#define STASIS_GO_BRIDGE_H
#include <stasis.h>

int32_t stasis_go_progress(void *user, uint64_t done, uint64_t total);
int32_t stasis_go_logits(void *user, uint64_t position, const float *logits, size_t count);
int32_t stasis_go_generated(void *user, const stasis_generated *generated);
int32_t stasis_go_write(void *user, const void *data, size_t size_bytes);
int64_t stasis_go_read(void *user, void *data, size_t size_bytes);
int64_t stasis_go_file_size(void *user, const char *name);
int64_t stasis_go_file_read(void *user, const char *name, uint64_t offset, void *data,
                            size_t size_bytes);
int32_t stasis_go_stored(void *user, const stasis_stored_session *session);

/* The table of a host's backend, with locks or without. */
stasis_store_backend stasis_go_backend(void *user, int32_t locks);
/* Calls a function of the library's. */
int32_t stasis_go_visit(stasis_store_key_fn visit, void *user, const char *key, uint64_t bytes,
                        uint64_t age_seconds);

#endif
