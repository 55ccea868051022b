/* How fast llama.cpp processes a prompt or generates tokens, through its C interface, as its
 * llama-bench does both: random tokens, a cache as large as the figure needs, a first run untimed.
 * Unlike llama-bench, it keeps the model, and what lies before the figure, from one request to the
 * next, so that programs can take turns without opening them anew. Compiled by tools/peer/build
 * against the llama.cpp it has built; knows nothing of stasis.
 * Usage: speed MODEL THREADS FLASH    FLASH: flash attention, 0 or 1
 * For each line of stdin, "PROMPT GENERATED DEPTH", it prints a line: tokens per second, of PROMPT
 * tokens at once or of GENERATED one by one (the other is 0), behind DEPTH others. */
#include "tools/peer/messages.h"

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CHUNK = 2048 }; /* llama-bench's -b */

struct figure {
    int prompt;
    int generated;
    int depth;
};

struct speed {
    struct llama_model *model;
    int threads;
    int flash;
    struct ggml_threadpool *pool;
    struct llama_context *context; /* of `last` */
    struct figure last;
    uint8_t *state; /* of a context that holds last.depth tokens */
    size_t state_bytes;
};

static int append(struct speed *speed, int count) {
    static llama_token tokens[CHUNK];
    int vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(speed->model));
    for (int i = 0; i < count; ++i) {
        tokens[i] = rand() % vocabulary;
    }
    return llama_decode(speed->context, llama_batch_get_one(tokens, count)) == 0
               ? 1
               : failed("computing failed");
}

static int process(struct speed *speed, int count) {
    int good = 1;
    for (int at = 0, now; good && at < count; at += now) {
        now = count - at < CHUNK ? count - at : CHUNK;
        good = append(speed, now);
    }
    llama_synchronize(speed->context);
    return good;
}

static int generate(struct speed *speed, int count) {
    int good = 1;
    for (int i = 0; good && i < count; ++i) {
        good = append(speed, 1);
        llama_synchronize(speed->context);
    }
    return good;
}

static void forget(struct speed *speed) {
    llama_free(speed->context);
    free(speed->state);
    speed->context = NULL;
    speed->state = NULL;
    speed->state_bytes = 0;
}

/* A context for a figure, and a first run in it. */
static int prepare(struct speed *speed, struct figure figure) {
    forget(speed);
    struct llama_context_params computing = llama_context_default_params();
    computing.n_ctx = (uint32_t)(figure.prompt + figure.generated + figure.depth);
    computing.n_batch = CHUNK;
    computing.n_threads = computing.n_threads_batch = speed->threads;
    computing.flash_attn_type =
        speed->flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    computing.swa_full = false;
    speed->context = llama_init_from_model(speed->model, computing);
    if (speed->context == NULL) {
        return failed("no context");
    }
    llama_attach_threadpool(speed->context, speed->pool, NULL);
    speed->last = figure;
    return process(speed, figure.prompt) && generate(speed, figure.generated > 0);
}

/* Has the context hold so many tokens as lie before the figure. */
static int go_to_depth(struct speed *speed) {
    llama_memory_clear(llama_get_memory(speed->context), false);
    if (speed->last.depth == 0) {
        return 1;
    }
    if (speed->state != NULL) {
        return llama_state_seq_set_data(speed->context, speed->state, speed->state_bytes, 0) != 0
                   ? 1
                   : failed("the state cannot be restored");
    }
    if (!process(speed, speed->last.depth)) {
        return 0;
    }
    speed->state_bytes = llama_state_seq_get_size(speed->context, 0);
    speed->state = malloc(speed->state_bytes);
    if (speed->state == NULL) {
        return failed("no memory for the state");
    }
    return llama_state_seq_get_data(speed->context, speed->state, speed->state_bytes, 0) ==
                   speed->state_bytes
               ? 1
               : failed("the state cannot be kept");
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int measure(struct speed *speed, struct figure figure) {
    int same = speed->context != NULL && memcmp(&figure, &speed->last, sizeof figure) == 0;
    if ((!same && !prepare(speed, figure)) || !go_to_depth(speed)) {
        return 0;
    }
    double begin = seconds();
    if (!process(speed, figure.prompt) || !generate(speed, figure.generated)) {
        return 0;
    }
    printf("%.4f\n", (figure.prompt + figure.generated) / (seconds() - begin));
    return fflush(stdout) == 0;
}

static int serve(struct speed *speed) {
    char line[100];
    int good = 1;
    while (good && fgets(line, sizeof line, stdin) != NULL) {
        struct figure figure = {0, 0, 0};
        good = sscanf(line, "%d %d %d", &figure.prompt, &figure.generated, &figure.depth) == 3 &&
                       figure.prompt >= 0 && figure.generated >= 0 && figure.depth >= 0 &&
                       (figure.prompt > 0) != (figure.generated > 0)
                   ? measure(speed, figure)
                   : failed("a line is not a figure; see the head of speed.c");
    }
    return good;
}

int main(int count, char **words) {
    if (count != 4) {
        failed("usage: see the head of speed.c");
        return 2;
    }
    llama_log_set(quiet, NULL);
    ggml_backend_load_all();
    struct speed speed = {0};
    speed.threads = atoi(words[2]);
    speed.flash = atoi(words[3]);
    struct ggml_threadpool_params pool = ggml_threadpool_params_default(speed.threads);
    speed.pool = ggml_threadpool_new(&pool);
    speed.model = llama_model_load_from_file(words[1], llama_model_default_params());
    int good = speed.model != NULL ? serve(&speed) : failed("the model cannot be opened");
    forget(&speed);
    llama_model_free(speed.model);
    ggml_threadpool_free(speed.pool);
    return good ? 0 : 1;
}
