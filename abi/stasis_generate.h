/* Stasis: logits and sampling, generation, and steps of several sessions. Part of stasis.h, which
 * states the conventions: errors, pointers, structs, text and threads. Include that. */
#ifndef STASIS_GENERATE_H
#define STASIS_GENERATE_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Logits and sampling ------------------------------------------------------------------- */
/* How the next token is drawn. 0 means off, except where a comment says otherwise; a zeroed struct
 * is greedy. Penalties and biases change logits, then the filters (top_k, top_p and so on) exclude
 * tokens, then one is drawn; NUMERICS.md, C7, states the order of all steps. The arrays are copied
 * by stasis_session_set_sampling. */
typedef struct stasis_sampling {
    uint32_t struct_size, top_k;
    float temperature;        /* 0: greedy, the best logit; else positive and finite */
    float top_p, min_p;       /* in 0 .. 1; top_p: 0 and 1 are off */
    float repetition_penalty; /* 0, 1: off */
    float frequency_penalty, presence_penalty;
    uint32_t penalty_window; /* last tokens that penalties count; 0: 64; UINT32_MAX: all */
    uint32_t bias_count;
    const stasis_token *bias_tokens; /* [bias_count], each once */
    const float *bias;               /* [bias_count], added to the logit; -INFINITY forbids */
    uint64_t seed;                   /* draws depend on (seed, position) and nothing else */
    /* The fields below are of a later version: a library that does not know them refuses to load a
     * snapshot of a session that uses them. */
    /* Locally typical sampling (Meister et al. 2023): keeps the fewest tokens, by the distance of
     * their information from the entropy, that together have this probability. Up to 1; 0, 1:
     * off. */
    float typical_p;
    /* Top-n-sigma (Tang et al. 2024): excludes logits that are further below the best than this
     * many standard deviations of all logits. Any positive number; 0: off. */
    float top_n_sigma;
    /* XTC, "exclude top choices" (P. E. Weidmann 2024): with probability xtc_probability (up to 1;
     * 0: off) excludes all tokens whose probability is at least xtc_threshold (up to 0.5; 0: 0.1),
     * except the least likely of them. Whether it does depends on (seed, position) and nothing
     * else. */
    float xtc_probability, xtc_threshold;
    /* DRY, "don't repeat yourself" (P. E. Weidmann 2024): lowers the logit of a token that would
     * continue a repetition of n >= dry_allowed_length tokens, by dry_multiplier * dry_base^(n -
     * dry_allowed_length). Multiplier 0: off; base at least 1, 0: 1.75; allowed length 0: 2;
     * dry_range: the last tokens that are searched, 0: all. */
    float dry_multiplier, dry_base;
    uint32_t dry_allowed_length, dry_range;
    uint32_t min_keep; /* typical_p, min_p, top_p and XTC keep this many, if there are; 0: 1 */
    uint32_t dry_breaker_count;
    /* [dry_breaker_count], in any order. A repetition ends at a breaker, and DRY lowers no
     * breaker's logit. Usual are the tokens whose text is or contains a line feed, a colon, a
     * quotation mark or an asterisk; stasis_model_detokenize returns the text of a token. */
    const stasis_token *dry_breakers;
} stasis_sampling;

/* Fills the struct with 0: greedy. `size` is its sizeof. Ignores NULL. Thread-safe. */
void stasis_sampling_init(stasis_sampling *sampling, size_t size);

/* Returns the logits of the next token, [vocabulary], computed from the stored final hidden state:
 * the same bits at every call. The session's log, pages and digest stay as they are.
 * Errors, also of top, sample and decode:
 *   NOT_FOUND  before the first position
 *   DIVERGED   a loaded session's hidden state does not give the logits that the file stored
 *   statuses of append: after a rewind the last token is computed again first */
stasis_status stasis_session_logits(const stasis_session *session, float *logits, size_t capacity,
                                    size_t *count, stasis_error *error);
/* Returns the n most likely next tokens, best first, ties by lower id, with natural
 * log-probabilities (may be NULL) of the model's own distribution, before any step of sampling.
 * Both arrays have n elements. INVALID_ARGUMENT: n exceeds the vocabulary. Returns also the
 * statuses of logits. */
stasis_status stasis_session_top(const stasis_session *session, size_t n, stasis_token *tokens,
                                 float *log_probabilities, stasis_error *error);
/* Returns the natural log-probability of each token of a continuation, [count]; the session is
 * unchanged. The continuation's pages count in the KV budget during the call.
 * Errors:
 *   NOT_FOUND  before the first position
 *   statuses of append */
stasis_status stasis_session_score(stasis_session *session, const stasis_token *tokens,
                                   size_t count, double *log_probabilities,
                                   const stasis_run_options *options, stasis_error *error);
/* Sets how the following tokens are drawn; NULL: greedy. The settings are in force until the next
 * call, in forks and in saved and loaded sessions. A session may use any number of settings, one
 * after the other; while the tokens in its log were drawn with 65535 different ones, decode and
 * generate with yet others return FULL. INVALID_ARGUMENT: a field is out of range, which the
 * message names; the settings stay as they were. */
stasis_status stasis_session_set_sampling(stasis_session *session, const stasis_sampling *sampling,
                                          stasis_error *error);
/* Returns the sampling settings that the model's own files recommend, with seed 0. A host passes
 * them, changed or not, to stasis_session_set_sampling: a new session is greedy until then.
 *
 * From generation_config.json: do_sample, temperature, top_k, top_p, min_p, typical_p,
 * repetition_penalty (over the whole log). do_sample false is temperature 0; if it is absent, the
 * others count as if it were true. From a GGUF file: general.sampling.temp, .top_k, .top_p, .min_p,
 * .xtc_probability, .xtc_threshold, .penalty_repeat, .penalty_last_n (absent: 64). If a file has
 * any of these, those that it lacks are off, and the temperature is 1. If it has none, or there is
 * no file: temperature 0.6, min_p 0.1, repetition_penalty 1.1 over 64 tokens. In any case the
 * tokens of suppress_tokens, or of tokenizer.ggml.suppress_tokens, are forbidden by `bias`, which
 * refers to arrays of the model. Other keys are not read.
 *
 * CORRUPT: a value has another type or is out of range; the message names it, and nothing is
 * written. (Such a model can be opened and used otherwise.) Thread-safe. */
stasis_status stasis_model_recommended_sampling(const stasis_model *model,
                                                stasis_sampling *sampling, stasis_error *error);
/* Draws the next token without appending it: the draw at a position is always the same.
 * INVALID_ARGUMENT: biases forbid every token. NO_TOKEN: a constraint (stasis_constraint.h) does.
 * Returns also the statuses of logits. */
stasis_status stasis_session_sample(const stasis_session *session, stasis_token *token,
                                    stasis_error *error);
/* Draws the next token and appends it, or does neither. Cannot be cancelled;
 * stasis_session_generate can.
 * Errors:
 *   statuses of sample and append
 *   FULL  the session's capacity, or set_sampling's limit of different settings */
stasis_status stasis_session_decode(stasis_session *session, stasis_token *token,
                                    stasis_error *error);

/* ---- Generation ---------------------------------------------------------------------------- */
/* A token that a generation has appended. `text` (may be empty) is the text that became final with
 * it: complete UTF-8 characters, and nothing that may still become part of a stop string. After the
 * last token an event with `last` set carries text that was held back; its token is the last one
 * again. Log-probabilities are natural and of the model's own distribution, before any step of
 * sampling: those that stasis_session_top returns before the draw, bit for bit. */
typedef struct stasis_generated {
    uint32_t struct_size;
    stasis_token token;
    uint64_t position; /* of the token */
    const char *text;  /* valid as the arrays are; empty without a tokenizer */
    size_t length;
    uint32_t last, reserved;
    float log_probability;               /* of the token; 0 if not asked for, and with `last` */
    uint32_t log_probability_count;      /* as in the options; 0 with `last` */
    const stasis_token *best_tokens;     /* [log_probability_count], best first, ties by lower id */
    const float *best_log_probabilities; /* both arrays are valid until the callback returns, or
                                            until the next call of stasis_generation_next */
} stasis_generated;

/* Called with each token, and once more with `last` if text was held back; the event is valid
 * until it returns. A non-zero return stops the generation; the token stays. Meanwhile the session
 * is settled (below): it can be read. */
typedef int32_t (*stasis_generate_fn)(void *user, const stasis_generated *generated);

#define STASIS_GENERATE_IGNORE_END 1u /* the model's end tokens do not stop it */
/* How a generation decodes and when it stops. The arrays are read during the call. */
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
    /* Reports with each token its log-probability, and those of this many most likely tokens in its
     * place. At most the vocabulary, else INVALID_ARGUMENT; 0: none are computed. */
    uint32_t log_probability_count, reserved;
    uint64_t timeout_ms; /* ends it with TIMEOUT, see stasis_resources.h; 0: no limit */
} stasis_generate_options;

#define STASIS_STOP_LENGTH 0u    /* reason: tokens_max, or the session is full */
#define STASIS_STOP_END_TOKEN 1u /* an end or stop token; it is in the log, not in the text */
#define STASIS_STOP_STRING 2u    /* a stop string; its tokens are in the log */
#define STASIS_STOP_CALLBACK 3u  /* the host; the status of stasis_session_generate is STOPPED */
#define STASIS_STOP_CANCELLED 4u /* the cancel handle; the status is CANCELLED */
#define STASIS_STOP_NO_TOKEN 5u  /* no token is left to draw: stasis_session_set_constraint */
#define STASIS_STOP_TIMEOUT 6u   /* timeout_ms has passed; the status is TIMEOUT */

/* Outcome of a generation, filled however it ends. */
typedef struct stasis_generate_result {
    uint32_t struct_size, stop_reason;
    uint64_t begin;          /* position of the first new token */
    uint64_t count;          /* new tokens */
    uint64_t drafted;        /* tokens that a drafter proposed (below) ... */
    uint64_t accepted;       /* ... and that were then drawn */
    uint64_t passes;         /* passes of the model: `count` where nothing was accepted */
    uint64_t draft_failures; /* times the drafter failed (for example, out of memory or pages);
                                the rest of the call then does without it */
} stasis_generate_result;

/* Fills the struct with defaults, as every _init function of stasis.h. */
void stasis_generate_options_init(stasis_generate_options *options, size_t size);
/* Decodes until one of the reasons above stops it, or a failure. In every case decoded tokens stay,
 * and `result` (may be NULL) reports them; it is all 0 if nothing began (refused arguments, BUSY).
 * Tokens are those that stasis_session_decode would draw, one after the other.
 *
 * Calls on several sessions of a model may run at once, but their speed does not add up: one uses
 * the model's threads, the others compute on their calling threads, and each reads all weights. To
 * serve many sessions use a scheduler (stasis_scheduler.h), which reads the weights once for all.
 *
 * Errors:
 *   statuses of decode
 *   UNSUPPORTED  stop strings without a tokenizer
 *   CANCELLED, TIMEOUT, STOPPED */
stasis_status stasis_session_generate(stasis_session *session,
                                      const stasis_generate_options *options,
                                      stasis_generate_result *result, stasis_error *error);

/* ---- Generation, a token at a time -------------------------------------------------------------
 * The same without a callback: the host asks for each token, and may stop asking.
 *
 *     stasis_generation *generation = NULL;
 *     stasis_generated generated = {sizeof generated};
 *     stasis_status status = stasis_generation_begin(session, &options, &generation, &error);
 *     while (status == STASIS_OK && !generated.last) {
 *         status = stasis_generation_next(generation, &generated, &error);
 *         if (status == STASIS_OK) {
 *             fwrite(generated.text, 1, generated.length, stdout);
 *         }
 *     }
 *     stasis_generation_end(generation);
 *
 * stasis_session_generate is a loop over it: tokens, texts, log-probabilities, stops, drafts and
 * digests are the same, bit for bit. Nothing is computed before it is asked for, except by a
 * drafter (below). Between two calls of next the session is settled, and can be read. Calls that
 * would change it return BUSY until the generation is over, because its text and its stops are
 * those of tokens that follow each other: append and its like, rewind, evict, decode, generate,
 * steps, set_sampling, set_draft, and another begin. A host that wants to change the session ends
 * the generation, and begins another.
 *
 * The generation serves one caller at a time: others get BUSY.
 *
 * ---- Settled sessions --------------------------------------------------------------------------
 * A session that generates is settled between two tokens: its log has the tokens that were
 * delivered and nothing else. A token is delivered when its event is: to the callback, by next, or
 * into a scheduler (stasis_scheduler.h), where it may wait to be fetched. Calls that read a session
 * answer for its settled position, in each of these forms and on any thread, with the bits of a
 * session that was given the same tokens alone. While a token is being computed they wait for it.
 *
 *   looking   get_info, digest, tokens, text, turns, reply, logits, top, sample, kv, fork,
 *             take_trace, get_data, list_data, set_data: short. Other calls wait for them, whether
 *             the session generates or not
 *   reading   save, write, stasis_store_put, score, attention, set_trace: may take their time. The
 *             generation waits for them; while one runs or waits, all other calls return BUSY
 *   changing  all others. While the session generates, they return BUSY; while one of them runs,
 *             all calls do
 *
 * Who waits has their turn in the order in which they came. So a call that reads waits for one
 * token (in a scheduler for two passes, for a session that is being read misses one), and a token
 * for one call of each other thread, however often they call. A token takes longer where a rewind,
 * or a drafter that is asked for the first time, has positions to be computed before it.
 *
 * A call that a callback makes never waits, but returns BUSY where it would. The callback of
 * stasis_session_generate is none of these, for it is called between two tokens.
 *
 * Nothing is copied or hashed for readers that do not come. What a drafter has computed ahead is
 * dropped for fork and those that may take their time, and in models with recurrent layers for all,
 * and computed again: that costs speed and nothing else. */
typedef struct stasis_generation stasis_generation;

/* Begins a generation; it draws nothing yet. Callback and callback_user must be NULL, else
 * INVALID_ARGUMENT: next has their place. The cancel handle may be released at any time.
 * Errors:
 *   INVALID_ARGUMENT, NOT_FOUND, UNSUPPORTED  as stasis_session_generate
 *   BUSY                                      also: a generation of this session is not over */
stasis_status stasis_generation_begin(stasis_session *session,
                                      const stasis_generate_options *options,
                                      stasis_generation **generation, stasis_error *error);
/* Draws the next token, appends it and describes it. After the last token the event has `last`: the
 * token is that one again (0 if there was none), and the text what was held back (often empty). The
 * generation is then over: the session is free for every call, and another next returns the same
 * event without text.
 *
 * On a failure nothing was drawn. Generation and session are as they were, and the same call may be
 * made again, for example after another session was freed, or after stasis_cancel_reset. It then
 * delivers what it would have delivered.
 * Errors:
 *   statuses of decode
 *   CANCELLED  `generated` then is an event with `last`, with the text that is held back: a host
 *              that gives up can show it. To one that goes on, that text comes again.
 *   TIMEOUT    `generated` then is the event with `last`: the generation is over
 *   NOT_FOUND  the session was freed before the generation was over */
stasis_status stasis_generation_next(stasis_generation *generation, stasis_generated *generated,
                                     stasis_error *error);
/* Reports the outcome so far. While the generation is not over, stop_reason is what ending it now
 * would make it: STASIS_STOP_CALLBACK, or STASIS_STOP_CANCELLED if the last next was cancelled. */
stasis_status stasis_generation_get_result(const stasis_generation *generation,
                                           stasis_generate_result *result, stasis_error *error);
/* Ends a generation and frees it. If it was not over, the session is as stasis_session_generate
 * leaves it whose callback asked to stop at the last token that was delivered. Does not wait: may
 * be called while another thread uses the session, before it is freed or after. */
void stasis_generation_end(stasis_generation *generation);

/* ---- Text of tokens ----------------------------------------------------------------------------
 * What generation makes of its tokens, for hosts that draw them with decode or steps: a token goes
 * in, the text that became final with it and the state of the stop conditions come out. A stream
 * serves one caller at a time (BUSY), and keeps its model alive. */
typedef struct stasis_text_stream stasis_text_stream;

/* The text that became final with a token: complete UTF-8 characters, and nothing that may still
 * become part of a stop string. */
typedef struct stasis_text_piece {
    uint32_t struct_size;
    uint32_t stopped;               /* 1: a stop condition is met; later tokens add nothing */
    uint32_t stop_reason, reserved; /* which; not stopped: STASIS_STOP_CALLBACK */
    const char *text;               /* may be empty; valid until the stream's next call */
    size_t length;
} stasis_text_piece;

/* Creates a stream with the stop conditions of the options: tokens_max (counted in this stream),
 * the model's end tokens, unless they are ignored, stop tokens and stop strings. The other fields
 * must be 0, else INVALID_ARGUMENT. UNSUPPORTED: stop strings without a tokenizer. */
stasis_status stasis_text_stream_create(const stasis_model *model,
                                        const stasis_generate_options *options,
                                        stasis_text_stream **stream, stasis_error *error);
/* Adds a token. Text of a stop or end token is not shown. INVALID_ARGUMENT: a token outside the
 * vocabulary; the stream is as it was. */
stasis_status stasis_text_stream_push(stasis_text_stream *stream, stasis_token token,
                                      stasis_text_piece *piece, stasis_error *error);
/* Ends the text, stopped or not: the piece is what was held back, but for an incomplete last
 * character. Later tokens add nothing. */
stasis_status stasis_text_stream_finish(stasis_text_stream *stream, stasis_text_piece *piece,
                                        stasis_error *error);
void stasis_text_stream_free(stasis_text_stream *stream);

/* ---- Speculative decoding ---------------------------------------------------------------------
 * A drafter proposes tokens after one that was drawn, and the model computes all of them in one
 * pass. Then a token is drawn at each position as always: proposals are kept up to the first one
 * that differs from the draw, and the others leave no trace. Tokens, text, callbacks, stops, log,
 * cache, digests and statuses are those of plain decoding, bit for bit, whatever is proposed; only
 * speed differs. */
/* How many tokens a drafter proposes for a pass. */
typedef struct stasis_draft_options {
    uint32_t struct_size, reserved;
    uint64_t tokens_min; /* fewest to propose for a pass; 0: 2 */
    uint64_t tokens_max; /* most to propose, up to 32; 0: 8, or tokens_min if that is more */
} stasis_draft_options;

/* Fills the struct with defaults, as every _init function of stasis.h. */
void stasis_draft_options_init(stasis_draft_options *options, size_t size);
/* Sets the drafter of generations (stasis_session_decode and stasis_sessions_step never draft):
 *   `draft` a smaller model with the same tokenizer  that model
 *   `draft` the session's own model  its MTP head (mtp_bytes of stasis_model_info is not 0);
 *                                    without a head the whole model, in vain
 *   `draft` NULL, with options       a search for what followed when the log's last tokens occurred
 *                                    before
 *   both NULL                        none, as in a new session
 * The number of proposals follows from how many were right recently, down to none but for an
 * occasional attempt; with tokens_min = tokens_max it is constant.
 *
 * The session keeps the draft model alive. The drafter's state is separate: a session over the
 * draft model, whose pages count in that model's budget and which computes the part of the log that
 * it lacks when it is next needed; for the head, keys and values of one layer, for the part of the
 * log that this session computed since this call, outside steps; or, for the search, 12 to 24 bytes
 * for each token of the log. This state survives appends and rewinds and is in no digest and no
 * snapshot (a loaded session has no drafter). A fork inherits the setting and makes a state of its
 * own. Proposals may take pages of the model's pool ahead of time; if there are none, a pass runs
 * without proposals. A session that tracks attention never drafts, as rows that are not kept would
 * count.
 *
 * On failure the setting stays as it was.
 * Errors:
 *   INVALID_ARGUMENT  numbers out of range
 *   MODEL_MISMATCH    the size of the vocabulary or a token differs in the draft model; the message
 *                     names both values */
stasis_status stasis_session_set_draft(stasis_session *session, stasis_model *draft,
                                       const stasis_draft_options *options, stasis_error *error);

/* ---- Steps of several sessions ----------------------------------------------------------------
 * What each of many sessions needs next, a prompt or one more token, computed as one step. Hosts
 * that serve many users find this done for them in stasis_scheduler.h. */
#define STASIS_STEP_SAMPLE 1u /* then draw the next token and append it */
/* The work of one session in a step. An item without tokens and flags does nothing. `token` and
 * `status` are outputs; `error` points to memory of the host. */
typedef struct stasis_step_item {
    uint32_t struct_size;
    uint32_t flags; /* STASIS_STEP_SAMPLE */
    stasis_session *session;
    size_t begin, count;  /* tokens [begin, begin + count) of the call's; appended first */
    stasis_token token;   /* out: the drawn token, if the status is OK */
    stasis_status status; /* out: a status of append or decode */
    stasis_error *error;  /* out; may be NULL */
} stasis_step_item;

/* Computes one step of several sessions of one model together: weights are read once for all, and
 * for sessions that decode, pages that forks share are read once. Each session gets the bits that
 * it gets alone. `stride` is the distance between items in bytes, a multiple of 8 and at least
 * sizeof(stasis_step_item). Without items the call does nothing.
 *
 * A failure of one item is reported in its status and does not affect the others: its session is as
 * before, or lacks only the draw. After CANCELLED or STOPPED, sessions that were complete stay so
 * and the others are as before.
 * Errors:
 *   INVALID_ARGUMENT  an item without a session, a session twice, several models, a range outside
 *                     the tokens, or `logits` in the options: nothing was done, and no item was
 *                     written to
 *   BUSY              a session is in use: nothing was done, and no item was written to
 *   CANCELLED, STOPPED */
stasis_status stasis_sessions_step(stasis_step_item *items, size_t stride, size_t item_count,
                                   const stasis_token *tokens, size_t token_count,
                                   const stasis_run_options *options, stasis_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif /* STASIS_GENERATE_H */
