/* The public header and library from plain C99: open a model, compute, freeze, resume, compare. */
#include <stdio.h>
#include <string.h>

#include "abi/stasis.h"

#define CHECK(call)                                                                                \
    do {                                                                                           \
        if ((call) != STASIS_OK) {                                                                 \
            fprintf(stderr, "%s: %s: %s\n", #call, stasis_status_name(error.status),               \
                    error.message);                                                                \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

int main(int argc, char **argv) {
    const stasis_token prompt[] = {5, 7, 11, 13, 17, 19};
    const char *path = "test_abi_c.stasis";
    stasis_error error;
    stasis_model *model = NULL;
    stasis_session *session = NULL, *resumed = NULL;
    stasis_save_options save;
    stasis_token first = 0, second = 1;
    stasis_digest before, after;
    if (argc != 2) {
        fprintf(stderr, "usage: test_abi_c MODEL\n");
        return 2;
    }
    CHECK(stasis_model_open(argv[1], NULL, &model, &error));
    CHECK(stasis_session_create(model, NULL, &session, &error));
    CHECK(stasis_session_append(session, prompt, sizeof prompt / sizeof *prompt, NULL, &error));
    stasis_save_options_init(&save, sizeof save);
    save.flags = STASIS_SAVE_REPLACE;
    CHECK(stasis_session_save(session, path, &save, &error));
    CHECK(stasis_session_load(model, path, NULL, &resumed, &error));
    stasis_model_close(model);
    CHECK(stasis_session_decode(session, &first, &error));
    CHECK(stasis_session_decode(resumed, &second, &error));
    CHECK(stasis_session_digest(session, &before, &error));
    CHECK(stasis_session_digest(resumed, &after, &error));
    stasis_session_free(session);
    stasis_session_free(resumed);
    remove(path);
    if (first != second || memcmp(&before, &after, sizeof before) != 0) {
        fprintf(stderr, "resumed session differs\n");
        return 1;
    }
    return 0;
}
