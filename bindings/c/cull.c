/* A culler: a conversation whose session is held to a budget of visible positions by evicting the
 * least attended ones, beside the same conversation without a budget, to see what the answers lose.
 * Strict C99 over stasis.h and nothing else. Usage: cull MODEL BUDGET [LATEST] < LINES, a user
 * turn each
 *
 * Which positions stay follows Zhang et al., "H2O: Heavy-Hitter Oracle for Efficient Generative
 * Inference of Large Language Models" (2023): half of the budget, or LATEST, for the latest ones,
 * the rest for those with most accumulated attention. In the paper each head chooses its own; a
 * session's positions are evicted for all heads and layers together, so sums over them decide in
 * this program. LATEST = BUDGET leaves the latest alone, a sliding window, for comparison. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stasis.h"

enum { LINE_BYTES = 1000, REPLY_TOKENS = 60, REPLY_BYTES = 2000 };

typedef struct culler {
    stasis_session *session;
    uint64_t budget;   /* positions that may be visible; 0: all */
    uint64_t latest;   /* of them, the latest, whatever their attention */
    uint64_t position; /* of the next token */
    uint64_t visible;  /* positions that are not evicted */
    uint64_t capacity;
    unsigned char *evicted; /* [capacity] */
    double *weights;        /* [capacity] accumulated attention */
} culler;

static stasis_status open_culler(culler *self, stasis_model *model, uint64_t budget,
                                 uint64_t latest, stasis_error *error) {
    stasis_session_options options;
    stasis_model_info info = {.struct_size = sizeof info};
    stasis_status status = stasis_model_get_info(model, &info, error);
    memset(self, 0, sizeof *self);
    self->budget = budget;
    self->latest = latest;
    self->capacity = info.context;
    stasis_session_options_init(&options, sizeof options);
    options.track_attention = budget == 0 ? 0 : STASIS_TRACK_TOTAL;
    if (status == STASIS_OK) {
        status = stasis_session_create(model, &options, &self->session, error);
    }
    if (status == STASIS_OK) {
        self->evicted = calloc(self->capacity, sizeof *self->evicted);
        self->weights = calloc(self->capacity, sizeof *self->weights);
        status = self->evicted != NULL && self->weights != NULL ? STASIS_OK : STASIS_NO_MEMORY;
    }
    return status;
}

static void close_culler(culler *self) {
    stasis_session_free(self->session);
    free(self->evicted);
    free(self->weights);
}

/* Brings the session back under its budget: one by one, the least attended of the positions that
 * are still visible and not among the latest. */
static stasis_status cull(culler *self, stasis_error *error) {
    stasis_status status = STASIS_OK;
    size_t count = 0;
    if (self->budget == 0 || self->visible <= self->budget) {
        return STASIS_OK;
    }
    status =
        stasis_session_attention(self->session, 0, self->weights, self->capacity, &count, error);
    while (status == STASIS_OK && self->visible > self->budget) {
        uint64_t least = UINT64_MAX;
        for (uint64_t i = 0; i + self->latest < self->position; ++i) {
            if (!self->evicted[i] &&
                (least == UINT64_MAX || self->weights[i] < self->weights[least])) {
                least = i;
            }
        }
        status = stasis_session_evict(self->session, least, least + 1, error);
        if (status == STASIS_OK) {
            self->evicted[least] = 1;
            --self->visible;
        }
    }
    return status;
}

/* Takes note of what was appended. */
static stasis_status advance(culler *self, stasis_error *error) {
    stasis_session_info info = {.struct_size = sizeof info};
    const stasis_status status = stasis_session_get_info(self->session, &info, error);
    if (status != STASIS_OK) {
        return status;
    }
    self->visible += info.position - self->position;
    self->position = info.position;
    return cull(self, error);
}

static int ends(const stasis_model_info *info, stasis_token token) {
    for (uint32_t i = 0; i < info->end_token_count; ++i) {
        if (info->end_tokens[i] == token) {
            return 1;
        }
    }
    return 0;
}

/* One user turn and the reply to it, drawn token by token, so that the budget holds throughout. */
static stasis_status say(culler *self, const stasis_model *model, const char *text, char *reply,
                         stasis_error *error) {
    stasis_model_info info = {.struct_size = sizeof info};
    stasis_status status = stasis_model_get_info(model, &info, error);
    if (status == STASIS_OK) {
        status = stasis_session_append_message(self->session, "user", text, strlen(text),
                                               STASIS_MESSAGE_REPLY, NULL, error);
    }
    if (status == STASIS_OK) {
        status = advance(self, error);
    }
    const uint64_t begin = self->position;
    for (int i = 0; status == STASIS_OK && i < REPLY_TOKENS; ++i) {
        stasis_token token = 0;
        status = stasis_session_decode(self->session, &token, error);
        if (status == STASIS_OK) {
            status = advance(self, error);
        }
        if (ends(&info, token)) {
            break;
        }
    }
    if (status == STASIS_OK) {
        size_t length = 0;
        status = stasis_session_text(self->session, begin, self->position, reply, REPLY_BYTES - 1,
                                     &length, error);
        reply[status == STASIS_OK ? length : 0] = '\0';
    }
    return status;
}

/* The conversation in both sessions, turn by turn. */
static stasis_status converse(stasis_model *model, culler *whole, culler *culled,
                              stasis_error *error) {
    char line[LINE_BYTES], replies[2][REPLY_BYTES];
    int turns = 0, same = 0;
    stasis_status status = STASIS_OK;
    while (status == STASIS_OK && fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        status = say(whole, model, line, replies[0], error);
        if (status == STASIS_OK) {
            status = say(culled, model, line, replies[1], error);
        }
        if (status != STASIS_OK) {
            break;
        }
        ++turns;
        printf("> %s\n%s\n", line, replies[0]);
        if (strcmp(replies[0], replies[1]) == 0) {
            ++same;
        } else {
            printf("with %" PRIu64 " of %" PRIu64 " positions: %s\n", culled->visible,
                   culled->position, replies[1]);
        }
    }
    if (status == STASIS_OK) {
        printf("%d of %d replies are the same; %" PRIu64 " of %" PRIu64 " positions are left\n",
               same, turns, culled->visible, culled->position);
    }
    return status;
}

int main(int argc, char **argv) {
    stasis_error error = {STASIS_OK, ""};
    stasis_model *model = NULL;
    culler whole, culled;
    const uint64_t budget = argc >= 3 ? strtoull(argv[2], NULL, 10) : 0;
    const uint64_t latest = argc == 4 ? strtoull(argv[3], NULL, 10) : budget / 2;
    if (argc < 3 || argc > 4 || latest < 1 || latest > budget) {
        fprintf(stderr, "usage: cull MODEL BUDGET [LATEST] < LINES, LATEST from 1 to BUDGET\n");
        return 2;
    }
    memset(&whole, 0, sizeof whole);
    memset(&culled, 0, sizeof culled);
    stasis_status status = stasis_model_open(argv[1], NULL, &model, &error);
    if (status == STASIS_OK) {
        status = open_culler(&whole, model, 0, 0, &error);
    }
    if (status == STASIS_OK) {
        status = open_culler(&culled, model, budget, latest, &error);
    }
    if (status == STASIS_OK) {
        status = converse(model, &whole, &culled, &error);
    }
    close_culler(&whole);
    close_culler(&culled);
    stasis_model_close(model);
    if (status != STASIS_OK) {
        fprintf(stderr, "%s: %s\n", stasis_status_name(status), error.message);
    }
    return status == STASIS_OK ? 0 : 1;
}
