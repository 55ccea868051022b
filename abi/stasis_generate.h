/* Stasis: logits and sampling, generation, and steps of several sessions. Part of stasis.h, which
 * states the conventions; include that. */
#ifndef STASIS_GENERATE_H
#define STASIS_GENERATE_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Logits and sampling ------------------------------------------------------------------- */
/* 0 means off, except where a comment says otherwise; a zeroed struct is greedy. */
typedef struct stasis_sampling {
    uint32_t struct_size, top_k;
    float temperature;        /* 0: greedy */
    float top_p, min_p;       /* top_p 1: off */
    float repetition_penalty; /* 1: off */
    float frequency_penalty, presence_penalty;
    uint32_t penalty_window; /* tokens that penalties look back on; 0: 64; UINT32_MAX: all */
    uint32_t bias_count;
    const stasis_token *bias_tokens; /* [bias_count], each once */
    const float *bias;               /* [bias_count], added to the logit; -INFINITY forbids */
    uint64_t seed;                   /* draws depend on (seed, position) and nothing else */
    /* What follows came later: a library that does not know it refuses to load a snapshot of a
     * session that uses it. The order of all steps is that of NUMERICS.md, C7. */
    /* Locally typical sampling (Meister et al. 2023): of the tokens whose information is nearest to
     * the entropy, the fewest that have this probability together. To 1; 0, 1: off. */
    float typical_p;
    /* Top-n-sigma (Tang et al. 2024): logits further below the best than so many standard
     * deviations of all logits are left out. Any positive number; 0: off. */
    float top_n_sigma;
    /* XTC, "exclude top choices" (P. E. Weidmann 2024): with the first probability (to 1, 0: off)
     * all tokens that have the second one (to 0.5, 0: 0.1) but the least likely are left out.
     * Whether it happens depends on (seed, position) and nothing else. */
    float xtc_probability, xtc_threshold;
    /* DRY, "don't repeat yourself" (P. E. Weidmann 2024): a token that would go on with a
     * repetition of n >= allowed length tokens loses multiplier * base^(n - allowed length).
     * Multiplier 0: off; base from 1 on, 0: 1.75; allowed length 0: 2; range: the last tokens that
     * it looks at, 0: all. */
    float dry_multiplier, dry_base;
    uint32_t dry_allowed_length, dry_range;
    uint32_t min_keep; /* typical_p, min_p, top_p and XTC leave so many, if there are; 0: 1 */
    uint32_t dry_breaker_count;
    /* [dry_breaker_count], in any order: no repetition goes over one, nor is one made less likely.
     * Usual are the tokens of a line feed, a colon, a quotation mark and an asterisk, and those
     * that hold one beside other text; stasis_model_detokenize tells what a token holds. */
    const stasis_token *dry_breakers;
} stasis_sampling;

void stasis_sampling_init(stasis_sampling *sampling, size_t size);

/* Logits of the next token, [vocabulary], computed from the kept final hidden state: the same bits
 * whenever they are asked for. NOT_FOUND before the first position, as top, sample and decode.
 * After a rewind the last token is run again first: all four can return append's statuses. */
stasis_status stasis_session_logits(const stasis_session *session, float *logits, size_t capacity,
                                    size_t *count, stasis_error *error);
/* The n most likely next tokens, best first, ties by lower id, with natural-log probabilities (may
 * be NULL). INVALID_ARGUMENT if n exceeds the vocabulary. */
stasis_status stasis_session_top(const stasis_session *session, size_t n, stasis_token *tokens,
                                 float *log_probabilities, stasis_error *error);
/* Natural-log probability of each token of a continuation, [count]; the session is unchanged.
 * Statuses of append; NOT_FOUND before the first position. */
stasis_status stasis_session_score(stasis_session *session, const stasis_token *tokens,
                                   size_t count, double *log_probabilities,
                                   const stasis_run_options *options, stasis_error *error);
/* NULL: greedy. INVALID_ARGUMENT names the field that is out of range. Any number of settings may
 * draw; where those of the tokens that are in the log are 65535 already, a draw with others by
 * decode or generate is FULL. */
stasis_status stasis_session_set_sampling(stasis_session *session, const stasis_sampling *sampling,
                                          stasis_error *error);
/* How the model's own files say that its tokens be drawn; seed 0. A host passes it on, changed or
 * not, to stasis_session_set_sampling: a new session is greedy until then.
 * generation_config.json: do_sample, temperature, top_k, top_p, min_p, typical_p,
 * repetition_penalty (of the whole log). do_sample false is temperature 0; where it is absent, the
 * rest counts as if it were true. A GGUF file: general.sampling.temp, .top_k, .top_p, .min_p,
 * .xtc_probability, .xtc_threshold, .penalty_repeat, .penalty_last_n (absent: 64). What a file that
 * gives any of these leaves out is off, and the temperature 1. A file that gives none, or none at
 * all: temperature 0.6, min_p 0.1, repetition_penalty 1.1 over 64 tokens. Other keys are not read.
 * CORRUPT: a value of another type, or out of range; named, and nothing is written. (Such a model
 * opens, and all else can be done with it.) */
stasis_status stasis_model_recommended_sampling(const stasis_model *model,
                                                stasis_sampling *sampling, stasis_error *error);
/* Draws the next token and changes nothing: the draw at a position is always the same.
 * INVALID_ARGUMENT if a bias forbids every token. */
stasis_status stasis_session_sample(const stasis_session *session, stasis_token *token,
                                    stasis_error *error);
/* Draws the next token and appends it, or does neither. */
stasis_status stasis_session_decode(stasis_session *session, stasis_token *token,
                                    stasis_error *error);

/* ---- Generation ---------------------------------------------------------------------------- */
/* A token that generate has appended. `text` (may be empty) is what can be shown since the last
 * one: complete UTF-8 characters, nothing that may yet turn out to be a stop string. A last event
 * with `last` set carries text that was held back; its token is the last one again.
 * Log-probabilities are natural and of the model's own distribution, before any step of sampling:
 * those that stasis_session_top gives before the draw, bit for bit. */
typedef struct stasis_generated {
    uint32_t struct_size;
    stasis_token token;
    uint64_t position; /* of the token */
    const char *text;  /* lives until the callback returns; empty without a tokenizer */
    size_t length;
    uint32_t last, reserved;
    float log_probability;          /* of the token; 0 if none are asked for, and with `last` */
    uint32_t log_probability_count; /* as in the options; 0 with `last` */
    const stasis_token *best_tokens;     /* [log_probability_count], best first, ties by lower id */
    const float *best_log_probabilities; /* theirs; both arrays live until the callback returns */
} stasis_generated;

/* A non-zero return stops; the token stays. */
typedef int32_t (*stasis_generate_fn)(void *user, const stasis_generated *generated);

#define STASIS_GENERATE_IGNORE_END 1u /* the model's own end tokens do not stop */
typedef struct stasis_generate_options {
    uint32_t struct_size, flags;
    uint64_t tokens_max;             /* 0: until the session is full */
    const stasis_token *stop_tokens; /* besides the model's end tokens */
    size_t stop_token_count;
    const char *const *stop_strings; /* zero-terminated, not empty */
    size_t stop_string_count;
    stasis_generate_fn callback; /* NULL: none */
    void *callback_user;
    stasis_cancel *cancel;
    /* With each token: its log-probability, and those of so many most likely ones in its place. At
     * most the vocabulary, else INVALID_ARGUMENT; 0: none are computed. */
    uint32_t log_probability_count, reserved;
} stasis_generate_options;

#define STASIS_STOP_LENGTH 0u    /* reasons: tokens_max, or the session is full */
#define STASIS_STOP_END_TOKEN 1u /* an end or stop token; it is in the log, not in the text */
#define STASIS_STOP_STRING 2u    /* a stop string; its tokens are in the log */
#define STASIS_STOP_CALLBACK 3u  /* the callback; the status is STOPPED */
#define STASIS_STOP_CANCELLED 4u /* the cancel handle; the status is CANCELLED */

typedef struct stasis_generate_result {
    uint32_t struct_size, stop_reason;
    uint64_t begin;          /* position of the first new token */
    uint64_t count;          /* new tokens */
    uint64_t drafted;        /* tokens that a drafter proposed (below) ... */
    uint64_t accepted;       /* ... and that were then drawn */
    uint64_t passes;         /* passes of the model: `count` where nothing was accepted */
    uint64_t draft_failures; /* times the drafter failed (out of memory or pages, say): until the
                                call's end it then went on without */
} stasis_generate_result;

void stasis_generate_options_init(stasis_generate_options *options, size_t size);
/* Decodes until something stops it. Whatever does, decoded tokens stay, and `result` (may be NULL)
 * tells of them; it is all 0 if nothing began (refused arguments, BUSY). Statuses of decode,
 * CANCELLED, STOPPED; UNSUPPORTED for stop strings without a tokenizer.
 * Calls on several sessions of a model may run at once, but their speed does not add up: one has
 * the model's threads, the others compute on those that called, and each reads all weights for
 * itself. What serves many sessions is stasis_sessions_step (below), which reads them once. */
stasis_status stasis_session_generate(stasis_session *session,
                                      const stasis_generate_options *options,
                                      stasis_generate_result *result, stasis_error *error);

/* ---- Speculative decoding ---------------------------------------------------------------------
 * A drafter proposes tokens behind one that was drawn, and the model computes all of them in one
 * pass. Then it draws at each position as always: as many as were proposed right are kept, the rest
 * leaves no trace. Tokens, text, callbacks, stops, log, cache, digests and statuses are those of
 * plain decoding, bit for bit, whatever is proposed; only speed differs. */
typedef struct stasis_draft_options {
    uint32_t struct_size, reserved;
    uint64_t tokens_min; /* proposed for a pass, at least; 0: 2 */
    uint64_t tokens_max; /* at most, up to 32; 0: 8, or tokens_min if that is more */
} stasis_draft_options;

void stasis_draft_options_init(stasis_draft_options *options, size_t size);
/* What drafts for stasis_session_generate from now on (stasis_session_decode and
 * stasis_sessions_step never draft): a smaller model with the same tokenizer, or with `draft` NULL
 * a search for what followed when the log's last tokens occurred before; off with both NULL, as it
 * is in a new session. How many tokens are proposed follows from how many of late were right, down
 * to none but for a try now and then; with tokens_min = tokens_max it is always that many.
 * The session keeps the draft model alive. The drafter's state is its own: a session over the draft
 * model, whose pages count in that model's budget and which computes what it lacks of the log when
 * it is next needed; or 12 to 24 bytes for each token of the log. It stays through appends and
 * rewinds, is in no digest and no snapshot (a loaded session has no drafter), and a fork inherits
 * what was set here, but makes a state anew. Rows that are proposed may take pages of the model's
 * pool ahead of time; where there are none, a pass goes without proposals. A session that tracks
 * attention never drafts: what is not kept would count.
 * INVALID_ARGUMENT (numbers out of range), MODEL_MISMATCH (the vocabulary's size, or a token that
 * is another in the draft model: both values are named): the setting is as before. */
stasis_status stasis_session_set_draft(stasis_session *session, stasis_model *draft,
                                       const stasis_draft_options *options, stasis_error *error);

/* ---- Steps of several sessions ------------------------------------------------------------- */
#define STASIS_STEP_SAMPLE 1u /* then draw the next token and append it */
/* What one session does in a step. One with a session and nothing else does nothing. */
typedef struct stasis_step_item {
    uint32_t struct_size;
    uint32_t flags; /* STASIS_STEP_SAMPLE */
    stasis_session *session;
    size_t begin, count;  /* its tokens: [begin, begin + count) of the call's; appended first */
    stasis_token token;   /* out: the one drawn, where the status is OK */
    stasis_status status; /* out: of append, and of decode */
    stasis_error *error;  /* out, NULL: not asked for */
} stasis_step_item;

/* One step of several sessions of one model, computed together: weights are read once for all, and
 * pages that forks share once for those that decode. Each session gets the bits that it gets alone.
 * `stride` is the distance of the items in bytes. What an item meets is in its status and leaves
 * the others alone: its session is as before, or lacks only the draw. Cancelled or stopped,
 * sessions that are complete stay so and the others are as before. INVALID_ARGUMENT (no session,
 * one twice, several models, a range outside the tokens, `logits` in the options) and BUSY (some
 * session): nothing was done, and no item was written to. CANCELLED, STOPPED. */
stasis_status stasis_sessions_step(stasis_step_item *items, size_t stride, size_t item_count,
                                   const stasis_token *tokens, size_t token_count,
                                   const stasis_run_options *options, stasis_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif /* STASIS_GENERATE_H */
