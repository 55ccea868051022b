/* One leg of a relay: takes a conversation from a file (or begins one), says TEXT, hears the reply,
 * puts it back into the file. Prints the session's digest and the reply. The same program stands in
 * bindings/cpp, bindings/go, bindings/python and bindings/rust; each goes on where another stopped.
 * Usage: relay MODEL FILE TEXT
 */
#include <stdio.h>
#include <string.h>

#include "stasis.h"

struct reply {
    char text[4096];
    size_t length;
};

static int32_t hear(void *user, const stasis_generated *generated) {
    struct reply *reply = user;
    if (generated->length > sizeof reply->text - reply->length) {
        return 1; /* stops */
    }
    memcpy(reply->text + reply->length, generated->text, generated->length);
    reply->length += generated->length;
    return 0;
}

/* The file's session, or a new one where there is no file. */
static stasis_status take(stasis_model *model, const char *path, stasis_session **session,
                          stasis_error *error) {
    stasis_status status = stasis_session_load(model, path, NULL, session, error);
    return status == STASIS_NOT_FOUND ? stasis_session_create(model, NULL, session, error) : status;
}

/* Adds this program's letter to those of the legs before. */
static stasis_status sign(stasis_session *session, stasis_error *error) {
    char legs[64];
    size_t length = 0;
    stasis_status status =
        stasis_session_get_data(session, "legs", legs, sizeof legs - 1, &length, error);
    if (status != STASIS_OK && status != STASIS_NOT_FOUND) {
        return status;
    }
    length = status == STASIS_OK ? length : 0; /* the first leg */
    legs[length] = 'C';
    return stasis_session_set_data(session, "legs", legs, length + 1, error);
}

static stasis_status run(stasis_session *session, const char *path, const char *text,
                         struct reply *reply, stasis_digest *digest, stasis_error *error) {
    stasis_generate_options options;
    stasis_generate_options_init(&options, sizeof options);
    options.tokens_max = 40;
    options.callback = hear;
    options.callback_user = reply;
    stasis_status status = stasis_session_append_message(session, "user", text, strlen(text),
                                                         STASIS_MESSAGE_REPLY, NULL, error);
    if (status == STASIS_OK) {
        status = stasis_session_generate(session, &options, NULL, error);
    }
    if (status == STASIS_OK) {
        status = stasis_session_save(session, path, NULL, error);
    }
    return status == STASIS_OK ? stasis_session_digest(session, digest, error) : status;
}

int main(int argc, char **argv) {
    struct reply reply = {"", 0};
    stasis_error error = {STASIS_OK, ""};
    stasis_model *model = NULL;
    stasis_session *session = NULL;
    stasis_digest digest;
    if (argc != 4) {
        fprintf(stderr, "usage: relay MODEL FILE TEXT\n");
        return 2;
    }
    const int good = stasis_model_open(argv[1], NULL, &model, &error) == STASIS_OK &&
                     take(model, argv[2], &session, &error) == STASIS_OK &&
                     sign(session, &error) == STASIS_OK &&
                     run(session, argv[2], argv[3], &reply, &digest, &error) == STASIS_OK;
    stasis_session_free(session);
    stasis_model_close(model);
    if (!good) {
        fprintf(stderr, "relay: %s: %s\n", stasis_status_name(error.status), error.message);
        return 1;
    }
    for (size_t i = 0; i < sizeof digest.bytes; ++i) {
        printf("%02x", digest.bytes[i]);
    }
    printf("\n%.*s\n", (int)reply.length, reply.text);
    return 0;
}
