/* Repair: tokens in the middle of a session's log replaced by others, as if they had been in the
 * log from the beginning. The tokens before them stay; the tokens after them are computed again,
 * because they saw what was replaced. The prefix cache keeps the old pages for a while, so that
 * going back computes only what does not fill a page. Strict C99 over abi/stasis.h. Usage: repair
 * MODEL */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "stasis.h"

enum { LOG = 400, BEGIN = 200, REPLACED = 3 };

/* Puts `count` tokens in the place of as many from `begin` on. All or nothing: the work is done on
 * a fork, which costs microseconds and no memory, and which takes the session's place in the end.
 * `*computed` gets the positions that it took computing for. */
static stasis_status repair(stasis_session **session, uint64_t begin, const stasis_token *tokens,
                            size_t count, uint64_t *computed, stasis_error *error) {
    stasis_session *fork = NULL;
    stasis_session_info info = {.struct_size = sizeof info};
    size_t length = 0;
    uint64_t appended = 0; /* by the rewind, if it recomputes, and after it */
    stasis_token *behind =
        malloc(LOG * sizeof *behind); /* the tokens after it, and their new begin */
    stasis_status status = behind == NULL ? STASIS_NO_MEMORY : STASIS_OK;
    if (status == STASIS_OK) {
        status = stasis_session_tokens(*session, begin, behind, NULL, LOG, &length, error);
    }
    if (status == STASIS_OK) {
        memcpy(behind, tokens, count * sizeof *tokens);
        status = stasis_session_get_info(*session, &info, error);
        appended = length + (begin < info.rewind_floor ? begin : 0);
    }
    if (status == STASIS_OK) {
        status = stasis_session_fork(*session, &fork, error);
    }
    if (status == STASIS_OK) { /* below the floor of a model with windows it computes these again */
        status = stasis_session_rewind(fork, begin, STASIS_REWIND_RECOMPUTE, NULL, error);
    }
    if (status == STASIS_OK) {
        status = stasis_session_append(fork, behind, length, NULL, error);
    }
    if (status == STASIS_OK) {
        status = stasis_session_get_info(fork, &info, error);
    }
    if (status == STASIS_OK) {
        stasis_session *old = *session;
        *computed = appended - info.tokens_reused; /* a fork's count begins at 0 */
        *session = fork;
        fork = old;
    }
    stasis_session_free(fork);
    free(behind);
    return status;
}

static double now_ms(void) { /* of all processors that work: C99 has no finer clock */
    return (double)clock() * 1e3 / CLOCKS_PER_SEC;
}

static int run(stasis_model *model, stasis_error *error) {
    stasis_session *session = NULL, *fresh = NULL;
    stasis_session_options alone;
    stasis_digest before, after, expected;
    stasis_token log[LOG], replaced[REPLACED];
    uint64_t computed = 0, back = 0;
    for (int i = 0; i < LOG; ++i) { /* any tokens do */
        log[i] = (stasis_token)(3 + i * i % 150);
    }
    for (int i = 0; i < REPLACED; ++i) {
        replaced[i] = log[BEGIN + i] + 1;
    }
    double start = now_ms();
    int good = stasis_session_create(model, NULL, &session, error) == STASIS_OK &&
               stasis_session_append(session, log, LOG, NULL, error) == STASIS_OK &&
               stasis_session_digest(session, &before, error) == STASIS_OK;
    fprintf(stderr, "%d positions: %.1f ms of processor time\n", LOG, now_ms() - start);

    start = now_ms();
    good = good && repair(&session, BEGIN, replaced, REPLACED, &computed, error) == STASIS_OK &&
           stasis_session_digest(session, &after, error) == STASIS_OK;
    fprintf(stderr, "repaired: %.1f ms\n", now_ms() - start);

    /* The same log in a session that shares with nobody. */
    stasis_session_options_init(&alone, sizeof alone);
    alone.domain = STASIS_DOMAIN_PRIVATE;
    stasis_token old[REPLACED];
    memcpy(old, log + BEGIN, sizeof old);
    memcpy(log + BEGIN, replaced, sizeof replaced);
    good = good && stasis_session_create(model, &alone, &fresh, error) == STASIS_OK &&
           stasis_session_append(fresh, log, LOG, NULL, error) == STASIS_OK &&
           stasis_session_digest(fresh, &expected, error) == STASIS_OK;
    if (good) {
        printf("%d tokens replaced at position %d of %d: %" PRIu64 " positions computed, %s\n",
               REPLACED, BEGIN, LOG, computed,
               memcmp(&after, &expected, sizeof after) == 0 ? "the same state as from scratch"
                                                            : "ANOTHER STATE than from scratch");
    }
    start = now_ms();
    good = good && repair(&session, BEGIN, old, REPLACED, &back, error) == STASIS_OK &&
           stasis_session_digest(session, &after, error) == STASIS_OK;
    fprintf(stderr, "and back: %.1f ms\n", now_ms() - start);
    if (good) {
        printf("and back: %" PRIu64 " positions computed, %s\n", back,
               memcmp(&after, &before, sizeof after) == 0 ? "the state before"
                                                          : "ANOTHER STATE than before");
    }
    stasis_session_free(fresh);
    stasis_session_free(session);
    return good;
}

int main(int argc, char **argv) {
    stasis_error error = {STASIS_OK, ""};
    stasis_model *model = NULL;
    if (argc != 2) {
        fprintf(stderr, "usage: repair MODEL\n");
        return 2;
    }
    const int good =
        stasis_model_open(argv[1], NULL, &model, &error) == STASIS_OK && run(model, &error);
    stasis_model_close(model);
    if (!good) {
        fprintf(stderr, "%s: %s\n", stasis_status_name(error.status), error.message);
        return 1;
    }
    return 0;
}
