/* What llama.cpp computes for given tokens, through its C interface: the logits after each as rows
 * of f32, as `stasis logits` writes them, and tokens generated greedily behind them. Compiled by
 * tools/peer/build against the llama.cpp it has built; knows nothing of stasis.
 * Usage: logits logits MODEL THREADS CHUNK FLASH OUT < IDS    FLASH: flash attention, 0 or 1
 *        logits greedy MODEL THREADS CHUNK FLASH N < IDS      prints a line a token: its id, and
 *                                                          how far it is above the next best
 *        logits expand MODEL OUT                              the same weights as F32 */
#include "tools/peer/messages.h"

#include <ggml-backend.h>
#include <llama.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS_MAX = 8192 };

struct run {
    struct llama_model *model;
    struct llama_context *context;
    int vocabulary;
    int chunk;
};

static int open_run(struct run *run, char **words, int tokens) {
    struct llama_model_params opening = llama_model_default_params();
    run->model = llama_model_load_from_file(words[0], opening);
    if (run->model == NULL) {
        return failed("the model cannot be opened");
    }
    struct llama_context_params computing = llama_context_default_params();
    run->chunk = atoi(words[2]);
    computing.n_ctx = (uint32_t)tokens;
    computing.n_batch = computing.n_ubatch = (uint32_t)run->chunk;
    computing.n_threads = computing.n_threads_batch = atoi(words[1]);
    computing.flash_attn_type =
        atoi(words[3]) ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    run->context = llama_init_from_model(run->model, computing);
    run->vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(run->model));
    return run->context != NULL ? 1 : failed("no context");
}

/* The rows of logits after each of these tokens, which are valid until the next call. */
static const float *append(struct run *run, llama_token *tokens, int count) {
    static int8_t all[TOKENS_MAX];
    memset(all, 1, sizeof all);
    struct llama_batch batch = {count, tokens, NULL, NULL, NULL, NULL, all};
    return llama_decode(run->context, batch) == 0 ? llama_get_logits(run->context) : NULL;
}

static int write_logits(struct run *run, llama_token *tokens, int count, const char *path) {
    FILE *out = fopen(path, "wb");
    if (out == NULL) {
        return failed("the output cannot be written");
    }
    int good = 1;
    for (int at = 0; good && at < count; at += run->chunk) {
        int now = count - at < run->chunk ? count - at : run->chunk;
        const float *rows = append(run, tokens + at, now);
        size_t values = (size_t)now * (size_t)run->vocabulary;
        good = rows != NULL && fwrite(rows, sizeof *rows, values, out) == values;
    }
    good = fclose(out) == 0 && good;
    return good ? 1 : failed("computing or writing logits failed");
}

static int generate(struct run *run, llama_token *tokens, int count, int generated) {
    for (int at = 0, now; at < count + generated; at += now) {
        now = count - at < run->chunk ? count - at : run->chunk;
        now = at < count ? now : 1;
        const float *rows = append(run, tokens + at, now);
        if (rows == NULL) {
            return failed("computing failed");
        }
        if (at + now < count || at + now == count + generated) {
            continue;
        }
        const float *row = rows + (size_t)(now - 1) * (size_t)run->vocabulary;
        int best = 0, second = 1;
        for (int id = 1; id < run->vocabulary; ++id) {
            if (row[id] > row[best]) {
                second = best;
                best = id;
            } else if (id == 1 || row[id] > row[second]) {
                second = id;
            }
        }
        tokens[at + now] = best;
        printf("%d %.6g\n", best, (double)(row[best] - row[second]));
        if (llama_vocab_is_eog(llama_model_get_vocab(run->model), best)) {
            return 1;
        }
    }
    return 1;
}

static int expand(const char *from, const char *to) {
    struct llama_model_quantize_params how = llama_model_quantize_default_params();
    how.ftype = LLAMA_FTYPE_ALL_F32;
    how.allow_requantize = true;
    return llama_model_quantize(from, to, &how) == 0 ? 1 : failed("expanding failed");
}

int main(int count, char **words) {
    llama_log_set(quiet, NULL);
    ggml_backend_load_all();
    if (count == 4 && strcmp(words[1], "expand") == 0) {
        return expand(words[2], words[3]) ? 0 : 1;
    }
    int greedy = count == 7 && strcmp(words[1], "greedy") == 0;
    if (!greedy && (count != 7 || strcmp(words[1], "logits") != 0)) {
        failed("usage: see the head of logits.c");
        return 2;
    }
    static llama_token tokens[TOKENS_MAX];
    int given = 0, generated = greedy ? atoi(words[6]) : 0;
    while (given + generated < TOKENS_MAX && scanf("%d%*[,]", &tokens[given]) == 1) {
        ++given;
    }
    struct run run = {NULL, NULL, 0, 0};
    int good = given > 0 ? open_run(&run, words + 2, given + generated) : failed("no tokens");
    if (good) {
        good = greedy ? generate(&run, tokens, given, generated)
                      : write_logits(&run, tokens, given, words[6]);
    }
    llama_free(run.context);
    llama_model_free(run.model);
    return good ? 0 : 1;
}
