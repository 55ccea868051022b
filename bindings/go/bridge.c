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
