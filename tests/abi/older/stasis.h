/* Stasis: an embeddable runtime for language-model sessions that can be frozen, copied, moved and
 * proven, bit for bit. The public header, with stasis_snapshot.h, which it includes; their comments
 * are the specification.
 *
 * Results. A call that can fail returns a stasis_status and, if `error` is not NULL, fills it: with
 * STASIS_OK and an empty message on success. A failed or cancelled call leaves every object as it
 * was. Beside the statuses named at a function, each may return INVALID_ARGUMENT (a NULL where none
 * is allowed, an impossible struct_size), UNSUPPORTED (a flag or option that this version does not
 * know), NO_MEMORY and INTERNAL; calls on sessions and snapshots may return BUSY.
 *
 * Pointers. Inputs are used or copied before the call returns, never kept, unless a comment says
 * so. An array may be NULL if its count is 0; outputs must not be NULL unless a comment allows it.
 * Objects are released once, by the function named with them, which ignores NULL, and not while
 * another call uses them.
 *
 * Structs that begin with `struct_size` only ever grow at their end: set it to sizeof before the
 * call (the _init functions do, and zero the rest). At most that many bytes are read or written;
 * missing fields count as 0, which always means the default; a non-zero tail that the library does
 * not know is UNSUPPORTED, and zeroed in outputs. Options may be NULL: all defaults.
 *
 * Text is UTF-8, given as pointer and length in bytes; output is never zero-terminated. `capacity`
 * of an output buffer is in elements; `*count` or `*length` receives what is needed. If that is
 * more than the capacity, nothing is written and the status is BUFFER_TOO_SMALL; the buffer may be
 * NULL if the capacity is 0, to ask for the size.
 *
 * Threads. Models and cancel handles may be used from any number of threads at once. A session or
 * snapshot serves one caller at a time, reading calls included: a second one gets BUSY. Callbacks
 * run on the calling thread in its own floating-point environment, must return, and get BUSY from
 * the object whose call they interrupt. The caller's floating-point environment has no influence on
 * results and is left as found; nothing is printed, nothing aborts, exits or touches signals. A
 * child of fork() may go on with what it inherits, one thread computing, unless another thread was
 * inside a call at that moment, and with objects of its own: the same bits in both processes. */
#ifndef STASIS_H
#define STASIS_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define STASIS_HEADER_VERSION 0x000100u /* 0xMMmmpp */

typedef int32_t stasis_status;
typedef uint32_t stasis_token;
typedef struct stasis_model stasis_model;       /* immutable after open */
typedef struct stasis_session stasis_session;   /* one mutable timeline of tokens */
typedef struct stasis_snapshot stasis_snapshot; /* an opened snapshot file, read-only */
typedef struct stasis_cancel stasis_cancel;     /* cancels calls, tells their progress */

#pragma GCC visibility push(default)

/* Statuses; the numbers never change. */
#define STASIS_OK 0
#define STASIS_INVALID_ARGUMENT 1  /* an argument is out of its domain; the message names it */
#define STASIS_NOT_FOUND 2         /* no such file, position or state */
#define STASIS_IO 3                /* the operating system failed a file operation */
#define STASIS_NO_MEMORY 4         /* an allocation failed */
#define STASIS_UNSUPPORTED 5       /* valid, but not something this build or model can do */
#define STASIS_CORRUPT 6           /* a file's bytes contradict themselves */
#define STASIS_VERSION 7           /* a format or contract version this build cannot honour */
#define STASIS_MODEL_MISMATCH 8    /* snapshot and model differ; the message names the element */
#define STASIS_FULL 9              /* the session's capacity or the model's maximum position */
#define STASIS_BUSY 10             /* another call is running on the object */
#define STASIS_CANCELLED 11        /* stasis_cancel_request */
#define STASIS_DIVERGED 12         /* recomputation did not reproduce the stored bits */
#define STASIS_DEVICE 13           /* the device or its driver is missing or failed */
#define STASIS_STOPPED 14          /* a callback asked to stop */
#define STASIS_INTERNAL 15         /* a defect of the library */
#define STASIS_NONFINITE 16        /* a NaN or infinity appeared; layer and position are named */
#define STASIS_POOL_EXHAUSTED 17   /* the KV budget is used up now; freeing sessions helps */
#define STASIS_BUFFER_TOO_SMALL 18 /* nothing was written; the size needed was */

/* Frozen. `message` is zero-terminated UTF-8: what was expected, what was found, and where. */
typedef struct stasis_error {
    stasis_status status;
    char message[508];
} stasis_error;

typedef struct stasis_digest { /* frozen; SHA-256 */
    uint8_t bytes[32];
} stasis_digest;

/* Called now and then by long calls, `done` rising to `total` (positions where tokens are computed,
 * bytes where files are read or written). A non-zero return ends the call with STOPPED. */
typedef int32_t (*stasis_progress_fn)(void *user, uint64_t done, uint64_t total);

uint32_t stasis_version(void);                        /* of the library, 0xMMmmpp */
const char *stasis_status_name(stasis_status status); /* "OK", ..., "UNKNOWN"; static */

/* ---- Cancelling -------------------------------------------------------------------------------
 * A handle may be given to any number of calls. A request is sticky: calls that see it end with
 * CANCELLED until it is reset. All but create may be called from any thread at any time, and ignore
 * NULL; a running call keeps the handle alive, so that release may come while it runs. */
stasis_status stasis_cancel_create(stasis_cancel **cancel, stasis_error *error);
void stasis_cancel_request(stasis_cancel *cancel);
void stasis_cancel_reset(stasis_cancel *cancel);
/* Progress of the last call that was given the handle, as its callback gets it; 0 of 0 before the
 * first report. Either output may be NULL. */
void stasis_cancel_progress(const stasis_cancel *cancel, uint64_t *done, uint64_t *total);
void stasis_cancel_release(stasis_cancel *cancel);

/* ---- Models -------------------------------------------------------------------------------- */
/* Where a model's bulk memory comes from: KV pages, converted weights, scratch. Bookkeeping uses
 * the C++ heap. `allocate` returns `size` bytes aligned to `alignment` (a power of two), or NULL,
 * which becomes NO_MEMORY. Both functions are called from any thread, several at once. The struct
 * is copied by a successful stasis_model_open; `release` (may be NULL) is then called once with
 * `user`, after the last memory came back: when the model and all its sessions are gone. */
typedef struct stasis_allocator {
    uint32_t struct_size, reserved; /* 0, as every field of that name */
    void *user;
    void *(*allocate)(void *user, size_t size, size_t alignment);
    void (*deallocate)(void *user, void *memory, size_t size, size_t alignment);
    void (*release)(void *user);
} stasis_allocator;

typedef struct stasis_model_options {
    uint32_t struct_size;
    uint32_t threads;          /* that compute, the caller's included; 0: one per core */
    const char *device;        /* "cpu"; NULL: cpu */
    const char *kernels;       /* "amx", "avx512bf16", "avx512", "avx2", "reference"; NULL: best */
    uint64_t kv_budget_bytes;  /* of all sessions' KV pages together; 0: no limit */
    const char *chat_template; /* "gemma", "chatml", "zephyr", "llama2", "llama3", "mistral",
                                  "phi3"; NULL: recognised from the model's files */
    const stasis_allocator *allocator; /* NULL: the C heap */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* bytes of weights read and digested */
    void *progress_user;
} stasis_model_options;

#define STASIS_MODEL_CONVERTED 1u /* weights were stored wider than bf16 and rounded to it */
#define STASIS_MODEL_TOKENIZER 2u /* the model has a tokenizer */

/* Pointers in it belong to the model and live until the model and all its sessions are gone. */
typedef struct stasis_model_info {
    uint32_t struct_size, flags;
    char architecture[32];                              /* zero-terminated, as the other names */
    uint32_t layers, hidden, heads, kv_heads, head_dim; /* hidden: width of the residual stream */
    uint32_t vocabulary;              /* rows of the output head; tokens are 0 .. vocabulary - 1 */
    uint64_t context;                 /* the model's maximum position count */
    uint32_t page_positions, threads; /* positions in a KV page, threads that compute */
    uint32_t contract[3];             /* versions of the numerics contract: core, KV, sampling */
    uint32_t end_token_count;
    const stasis_token *end_tokens;
    const uint32_t *layer_windows;                    /* [layers], positions a query sees, 0: all */
    int64_t bos;                                      /* -1: none */
    char kernels[32], device[32], chat_template[32];  /* template "": none recognised */
    stasis_digest model;                              /* identity of all that determines results */
    stasis_digest embeddings, norms, head, tokenizer; /* tokenizer zero: none */
    const stasis_digest *attention, *mlp;             /* [layers] */
} stasis_model_info;

typedef struct stasis_model_stats {
    uint32_t struct_size, reserved;
    uint64_t kv_budget_bytes; /* UINT64_MAX: no limit */
    uint64_t kv_used_bytes;   /* in pages that sessions hold */
    uint64_t kv_cached_bytes; /* in free pages kept for reuse; within the budget */
    uint64_t kv_shared_bytes; /* of used pages once more for each further session that holds them */
    uint64_t scratch_bytes;   /* work space of forward passes */
} stasis_model_stats;

void stasis_model_options_init(stasis_model_options *options, size_t size);
/* Opens a Hugging Face directory: config.json, safetensors, and where present
 * generation_config.json, tokenizer.model, tokenizer_config.json, chat_template.jinja. bf16 weights
 * stay mapped: the files must not be changed while the model or a session of it lives (size and
 * time are checked again by appends, by decoding every 64 tokens; a change that hides from both
 * cannot be noticed, and a file cut short under way raises SIGBUS). Sessions keep a closed model
 * alive. NOT_FOUND, IO, CORRUPT, UNSUPPORTED (architecture, tensor, dtype, activation, kernels:
 * named), NONFINITE (a weight: named), DEVICE, CANCELLED, STOPPED. */
stasis_status stasis_model_open(const char *path, const stasis_model_options *options,
                                stasis_model **model, stasis_error *error);
void stasis_model_close(stasis_model *model);
stasis_status stasis_model_get_info(const stasis_model *model, stasis_model_info *info,
                                    stasis_error *error);
stasis_status stasis_model_get_stats(const stasis_model *model, stasis_model_stats *stats,
                                     stasis_error *error);

/* ---- Text -------------------------------------------------------------------------------------
 * UNSUPPORTED from a model without a tokenizer (render: without a template). */
#define STASIS_TOKENIZE_BOS 1u       /* begin with the beginning-of-sequence token */
#define STASIS_TOKENIZE_SPECIAL 2u   /* markers in the text are special tokens; else plain text */
#define STASIS_DETOKENIZE_SPECIAL 1u /* special tokens give their marker; without it, nothing */
#define STASIS_DETOKENIZE_MIDDLE 2u  /* as in the middle of a text: keep a leading space */
#define STASIS_DETOKENIZE_PIECE 4u   /* of one token: the piece as the vocabulary spells it */
/* INVALID_ARGUMENT: invalid UTF-8, byte offset named. */
stasis_status stasis_model_tokenize(const stasis_model *model, const char *text, size_t length,
                                    uint32_t flags, stasis_token *tokens, size_t capacity,
                                    size_t *count, stasis_error *error);
/* The bytes may be incomplete UTF-8 where a character is split across tokens. */
stasis_status stasis_model_detokenize(const stasis_model *model, const stasis_token *tokens,
                                      size_t count, uint32_t flags, char *text, size_t capacity,
                                      size_t *length, stasis_error *error);

typedef struct stasis_message {
    uint32_t struct_size, reserved;
    const char *role; /* "system", "user", "assistant", or what else the template knows */
    const char *text;
    size_t length;
} stasis_message;

#define STASIS_RENDER_REPLY 1u /* end with the prompt for a reply */
/* A whole conversation through the model's chat template, bos included where the template has it;
 * `stride` is the distance of the messages in bytes. INVALID_ARGUMENT where the template refuses
 * the order of roles. */
stasis_status stasis_model_render(const stasis_model *model, const stasis_message *messages,
                                  size_t stride, size_t count, uint32_t flags, char *text,
                                  size_t capacity, size_t *length, stasis_error *error);

/* ---- Sessions ------------------------------------------------------------------------------ */
#define STASIS_WINDOW_RETAIN_NONE UINT64_MAX
typedef struct stasis_session_options {
    uint32_t struct_size, reserved;
    uint64_t capacity;      /* positions it may reach; 0: the model's context, which is the most */
    uint64_t reserve;       /* positions whose memory is taken at once; 0: as they come */
    uint64_t window_retain; /* positions that local layers keep beyond their window, so that rewind
                               reaches back; 0: one window; STASIS_WINDOW_RETAIN_NONE: none */
} stasis_session_options;

/* Gets the logits of an appended position, [count], valid until it returns. Non-zero: STOPPED. */
typedef int32_t (*stasis_logits_fn)(void *user, uint64_t position, const float *logits,
                                    size_t count);

typedef struct stasis_run_options {
    uint32_t struct_size;
    uint32_t chunk; /* positions computed together; 0: chosen; no influence on results */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* positions of this call */
    void *progress_user;
    stasis_logits_fn logits; /* NULL: none; ascending positions */
    void *logits_user;
} stasis_run_options;

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
} stasis_sampling;

typedef struct stasis_session_info {
    uint32_t struct_size;
    uint32_t window;   /* of local layers; 0: the model has none */
    uint64_t position; /* tokens in the log; the next token takes this position */
    uint64_t capacity;
    uint64_t rewind_floor; /* lowest position that rewind reaches without recomputing */
    uint64_t window_retain;
    uint64_t window_begin; /* first position whose keys and values all layers still hold */
    uint64_t pages_own, pages_shared; /* KV pages that only it holds, that others hold too */
    uint64_t kv_bytes;                /* of both */
    uint64_t pending_bytes;           /* system text that waits for the first user turn */
} stasis_session_info;

#define STASIS_SOURCE_PROMPT 0u   /* of a token: given as tokens by the caller */
#define STASIS_SOURCE_TEMPLATE 1u /* added by the chat template */
#define STASIS_SOURCE_TEXT 2u     /* text of a message */
#define STASIS_SOURCE_SAMPLED 3u  /* drawn */

void stasis_session_options_init(stasis_session_options *options, size_t size);
void stasis_run_options_init(stasis_run_options *options, size_t size);
void stasis_sampling_init(stasis_sampling *sampling, size_t size);

/* An empty session. INVALID_ARGUMENT (capacity above the context), POOL_EXHAUSTED (reserve). */
stasis_status stasis_session_create(stasis_model *model, const stasis_session_options *options,
                                    stasis_session **session, stasis_error *error);
void stasis_session_free(stasis_session *session);

/* Appends tokens at the session's position: all of them or, on any failure, none. INVALID_ARGUMENT
 * (a token outside the vocabulary: index and id named), FULL, POOL_EXHAUSTED, NONFINITE, IO (the
 * model's files changed), CANCELLED, STOPPED. */
stasis_status stasis_session_append(stasis_session *session, const stasis_token *tokens,
                                    size_t count, const stasis_run_options *options,
                                    stasis_error *error);

#define STASIS_MESSAGE_REPLY 1u /* follow the message with the prompt for a reply */
/* Renders one turn through the chat template and appends it; history is never rendered or tokenized
 * again. Adds bos before the first turn where the template has it, and first closes a reply that
 * still stands open, with the template's own end. A system text that the template folds into the
 * first user turn waits in the session (and its snapshots). `role` is zero-terminated. Statuses of
 * append, and INVALID_ARGUMENT for an order of roles that the template refuses, UNSUPPORTED without
 * a tokenizer or template. */
stasis_status stasis_session_append_message(stasis_session *session, const char *role,
                                            const char *text, size_t length, uint32_t flags,
                                            const stasis_run_options *options, stasis_error *error);

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
/* NULL: greedy. INVALID_ARGUMENT names the field that is out of range. */
stasis_status stasis_session_set_sampling(stasis_session *session, const stasis_sampling *sampling,
                                          stasis_error *error);
/* Draws the next token and changes nothing: the draw at a position is always the same.
 * INVALID_ARGUMENT if a bias forbids every token. */
stasis_status stasis_session_sample(const stasis_session *session, stasis_token *token,
                                    stasis_error *error);
/* Draws the next token and appends it, or does neither. */
stasis_status stasis_session_decode(stasis_session *session, stasis_token *token,
                                    stasis_error *error);

/* A token that generate has appended. `text` (may be empty) is what can be shown since the last
 * one: complete UTF-8 characters, nothing that may yet turn out to be a stop string. A last event
 * with `last` set carries text that was held back; its token is the last one again. */
typedef struct stasis_generated {
    uint32_t struct_size;
    stasis_token token;
    uint64_t position; /* of the token */
    const char *text;  /* lives until the callback returns; empty without a tokenizer */
    size_t length;
    uint32_t last, reserved;
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
} stasis_generate_options;

#define STASIS_STOP_LENGTH 0u    /* reasons: tokens_max, or the session is full */
#define STASIS_STOP_END_TOKEN 1u /* an end or stop token; it is in the log, not in the text */
#define STASIS_STOP_STRING 2u    /* a stop string; its tokens are in the log */
#define STASIS_STOP_CALLBACK 3u  /* the callback; the status is STOPPED */
#define STASIS_STOP_CANCELLED 4u /* the cancel handle; the status is CANCELLED */

typedef struct stasis_generate_result {
    uint32_t struct_size, stop_reason;
    uint64_t begin; /* position of the first new token */
    uint64_t count; /* new tokens */
} stasis_generate_result;

void stasis_generate_options_init(stasis_generate_options *options, size_t size);
/* Decodes until something stops it. Whatever does, decoded tokens stay, and `result` (may be NULL)
 * tells of them; it is all 0 if nothing began (refused arguments, BUSY). Statuses of decode,
 * CANCELLED, STOPPED; UNSUPPORTED for stop strings without a tokenizer. */
stasis_status stasis_session_generate(stasis_session *session,
                                      const stasis_generate_options *options,
                                      stasis_generate_result *result, stasis_error *error);

/* A second session with the same state and settings. Copies no page: the cost does not depend on
 * the length. Both go on independently, also at the same time in different threads. */
stasis_status stasis_session_fork(const stasis_session *session, stasis_session **child,
                                  stasis_error *error);

#define STASIS_REWIND_RECOMPUTE 1u /* below the floor, compute local layers again from the log */
/* Goes back to `position`: tokens from there on are gone, as if they had never been. Sampling
 * settings stay. INVALID_ARGUMENT beyond the position; UNSUPPORTED below the floor (named) without
 * the flag; with it, the statuses of append. To 0 is always possible. */
stasis_status stasis_session_rewind(stasis_session *session, uint64_t position, uint32_t flags,
                                    const stasis_run_options *options, stasis_error *error);

/* Copies keys and values of positions [begin, end) of a layer, bf16, each [end - begin][kv_heads]
 * [head_dim]; `capacity` and `*count` are elements of one of the two. NOT_FOUND: released. */
stasis_status stasis_session_kv(const stasis_session *session, uint32_t layer, uint64_t begin,
                                uint64_t end, uint16_t *keys, uint16_t *values, size_t capacity,
                                size_t *count, stasis_error *error);
stasis_status stasis_session_get_info(const stasis_session *session, stasis_session_info *info,
                                      stasis_error *error);
/* Tokens from `begin` to the end, with their sources (either may be NULL). */
stasis_status stasis_session_tokens(const stasis_session *session, uint64_t begin,
                                    stasis_token *tokens, uint8_t *sources, size_t capacity,
                                    size_t *count, stasis_error *error);
/* Text of positions [begin, end) without special tokens; an incomplete last character is left out.
 * UNSUPPORTED without a tokenizer. */
stasis_status stasis_session_text(const stasis_session *session, uint64_t begin, uint64_t end,
                                  char *text, size_t capacity, size_t *length, stasis_error *error);
/* SHA-256 over the state: model, tokens, keys and values of every position, final hidden state; not
 * sources, not settings. Equal digests: the same from here on, whatever history, device or file. */
stasis_status stasis_session_digest(const stasis_session *session, stasis_digest *digest,
                                    stasis_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#include "stasis_snapshot.h" /* sessions to files and streams and back */
#endif                       /* STASIS_H */
