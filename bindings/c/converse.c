/* The C example: two turns of a conversation, frozen to a file after the first, resumed from it,
 * and verified at the end. Strict C99 over stasis.h and nothing else. Usage: converse MODEL
 * FILE */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "stasis.h"

/* Asks for the reply, token by token, and shows each piece as it comes. */
static stasis_status reply(stasis_session *session, stasis_error *error) {
    stasis_generation *generation = NULL;
    stasis_generated generated = {.struct_size = sizeof generated};
    stasis_generate_options options;
    stasis_generate_options_init(&options, sizeof options);
    options.tokens_max = 60;
    stasis_status status = stasis_generation_begin(session, &options, &generation, error);
    while (status == STASIS_OK && !generated.last) {
        status = stasis_generation_next(generation, &generated, error);
        if (status == STASIS_OK) {
            fwrite(generated.text, 1, generated.length, stdout);
        }
    }
    stasis_generation_end(generation);
    return status;
}

/* One user turn and the reply to it. */
static stasis_status say(stasis_session *session, const char *text, stasis_error *error) {
    printf("> %s\n", text);
    stasis_status status = stasis_session_append_message(session, "user", text, strlen(text),
                                                         STASIS_MESSAGE_REPLY, NULL, error);
    if (status == STASIS_OK) {
        status = reply(session, error);
    }
    printf("\n");
    return status;
}

static int converse(stasis_model *model, const char *path, stasis_error *error) {
    const char *first = "Let's start by defining a variable k equal to 5. What is k?";
    const char *second = "Now set a new variable m equal to k multiplied by 11. What is m?";
    stasis_session *session = NULL;
    stasis_snapshot *snapshot = NULL;
    stasis_verify_report report = {.struct_size = sizeof report};
    stasis_save_options replace;
    stasis_save_options_init(&replace, sizeof replace);
    replace.flags = STASIS_SAVE_REPLACE;

    int good = stasis_session_create(model, NULL, &session, error) == STASIS_OK &&
               say(session, first, error) == STASIS_OK &&
               stasis_session_save(session, path, &replace, error) == STASIS_OK;
    stasis_session_free(session); /* the file is all that is left of the conversation */
    session = NULL;

    good = good && stasis_session_load(model, path, NULL, &session, error) == STASIS_OK &&
           say(session, second, error) == STASIS_OK &&
           stasis_session_save(session, path, NULL, error) == STASIS_OK;
    stasis_session_free(session);

    /* Computes everything again from the tokens and compares every stored bit. */
    good = good && stasis_snapshot_open(path, &snapshot, error) == STASIS_OK &&
           stasis_snapshot_verify(snapshot, model, NULL, &report, error) == STASIS_OK;
    stasis_snapshot_close(snapshot);
    if (good) {
        printf("%" PRIu64 " positions verified\n", report.positions);
    }
    return good;
}

int main(int argc, char **argv) {
    stasis_error error = {STASIS_OK, ""};
    stasis_model *model = NULL;
    if (argc != 3) {
        fprintf(stderr, "usage: converse MODEL FILE\n");
        return 2;
    }
    const int good = stasis_model_open(argv[1], NULL, &model, &error) == STASIS_OK &&
                     converse(model, argv[2], &error);
    stasis_model_close(model);
    if (!good) {
        fprintf(stderr, "%s: %s\n", stasis_status_name(error.status), error.message);
    }
    return good ? 0 : 1;
}
