/* Stasis: an embeddable runtime for language-model sessions that can be frozen, copied, moved and
 * proven, bit for bit. This is the only public header; its comments are the specification.
 *
 * Every call that can fail returns a stasis_status and, if `error` is not NULL, fills it: on success
 * with STASIS_OK and an empty message. A failed or cancelled call leaves every object as it was.
 *
 * Structs that begin with `struct_size` are versioned: set it to sizeof (the _init functions do).
 * The library reads and writes at most that many bytes, takes missing fields as 0, which means the
 * default, and refuses a non-zero tail that it does not know with STASIS_UNSUPPORTED. Where a
 * function takes options, NULL means all defaults; what options point to is not kept after the call
 * unless a comment says so.
 *
 * Text is UTF-8, given as pointer and length in bytes, and never zero-terminated on output. Output
 * buffers: `capacity` is their size in elements; `*count` or `*length` receives the number needed.
 * If capacity is too small nothing is written to the buffer and the status is
 * STASIS_BUFFER_TOO_SMALL; the buffer may be NULL if capacity is 0.
 *
 * Threads: a model may be used from any number of threads at once. A session or snapshot serves one
 * caller at a time: a second concurrent one gets STASIS_BUSY. Callbacks run on the calling thread
 * and must not call into the object whose call they interrupt. The floating-point environment of the
 * calling thread has no influence and is left as found. Nothing is printed; nothing aborts or exits. */
#ifndef STASIS_H
#define STASIS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(STASIS_BUILDING_LIBRARY)
#define STASIS_API __attribute__((visibility("default")))
#else
#define STASIS_API
#endif

#define STASIS_HEADER_VERSION 0x000100u /* 0xMMmmpp */

typedef int32_t stasis_status;
typedef uint32_t stasis_token;
typedef struct stasis_model stasis_model;       /* immutable after open */
typedef struct stasis_session stasis_session;   /* one mutable timeline of tokens */
typedef struct stasis_snapshot stasis_snapshot; /* an opened snapshot file, read-only */
typedef struct stasis_cancel stasis_cancel;     /* cancels calls, tells their progress */

/* Statuses; the numbers never change. */
#define STASIS_OK 0
#define STASIS_INVALID_ARGUMENT 1 /* an argument is out of its domain; the message names it */
#define STASIS_NOT_FOUND 2        /* no such file, page or state */
#define STASIS_IO 3               /* the operating system failed a file operation */
#define STASIS_NO_MEMORY 4        /* an allocation failed */
#define STASIS_UNSUPPORTED 5      /* valid, but not something this build or model can do */
#define STASIS_CORRUPT 6          /* a file's bytes contradict themselves */
#define STASIS_VERSION 7          /* a format or contract version this build cannot honour */
#define STASIS_MODEL_MISMATCH 8   /* snapshot and model differ; the message names the element */
#define STASIS_FULL 9             /* the session's capacity or the model's maximum position */
#define STASIS_BUSY 10            /* another call is running on the object */
#define STASIS_CANCELLED 11       /* stasis_cancel_request */
#define STASIS_DIVERGED 12        /* recomputation did not reproduce the stored bits */
#define STASIS_DEVICE 13          /* the device or its driver is missing or failed */
#define STASIS_STOPPED 14         /* a callback asked to stop */
#define STASIS_INTERNAL 15        /* a defect of the library */
#define STASIS_NONFINITE 16       /* a NaN or infinity appeared; layer and position are named */
#define STASIS_POOL_EXHAUSTED 17  /* the KV budget is used up now; freeing sessions helps */
#define STASIS_BUFFER_TOO_SMALL 18

/* Frozen. `message` is zero-terminated UTF-8: what was expected, what was found, and where. */
typedef struct stasis_error {
    stasis_status status;
    char message[508];
} stasis_error;

typedef struct stasis_digest { /* frozen; SHA-256 */
    uint8_t bytes[32];
} stasis_digest;

/* Called now and then by long calls, `done` rising to `total` (positions where tokens are computed,
 * bytes where files are read or written). A non-zero return ends the call with STASIS_STOPPED. */
typedef int32_t (*stasis_progress_fn)(void *user, uint64_t done, uint64_t total);

STASIS_API uint32_t stasis_version(void);                           /* of the library, 0xMMmmpp */
STASIS_API const char *stasis_status_name(stasis_status status);    /* "OK", ...; static; never NULL */

/* ---- Cancelling ------------------------------------------------------------------------------ *
 * A handle may be given to any number of calls. A request is sticky: calls that see it end with
 * STASIS_CANCELLED until it is reset. All functions but create may be called from any thread at any
 * time; each running call keeps the handle alive, so release may come at any time too.
 * NULL is ignored by request, reset, progress and release. create: INVALID_ARGUMENT, NO_MEMORY. */
STASIS_API stasis_status stasis_cancel_create(stasis_cancel **cancel, stasis_error *error);
STASIS_API void stasis_cancel_request(stasis_cancel *cancel);
STASIS_API void stasis_cancel_reset(stasis_cancel *cancel);
/* Progress of the last call that used the handle, as its progress callback would have got it. */
STASIS_API void stasis_cancel_progress(const stasis_cancel *cancel, uint64_t *done, uint64_t *total);
STASIS_API void stasis_cancel_release(stasis_cancel *cancel);

/* ---- Models ---------------------------------------------------------------------------------- */

/* Where a model's bulk memory comes from: KV pages, converted weights, scratch. Small bookkeeping
 * uses the C++ heap. `allocate` returns `size` bytes aligned to `alignment` (a power of two), or
 * NULL, which the library reports as STASIS_NO_MEMORY. Called from any thread. `release` (may be
 * NULL) is called once with `user` when the model is gone. Copied when the model opens. */
typedef struct stasis_allocator {
    uint32_t struct_size;
    uint32_t reserved;
    void *user;
    void *(*allocate)(void *user, size_t size, size_t alignment);
    void (*deallocate)(void *user, void *memory, size_t size, size_t alignment);
    void (*release)(void *user);
} stasis_allocator;

typedef struct stasis_model_options {
    uint32_t struct_size;
    uint32_t threads;            /* that compute, the caller's included; 0: one per available core */
    const char *device;          /* "cpu" (NULL: cpu) */
    const char *kernels;         /* "reference"; NULL: the best this machine runs */
    uint64_t kv_budget_bytes;    /* of all sessions' KV pages together; 0: no limit */
    const char *chat_template;   /* "gemma", "chatml", "zephyr", "llama2", "llama3", "mistral",
                                    "phi3"; NULL: recognised from the model's files */
    const stasis_allocator *allocator; /* NULL: the C heap */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* bytes of weights read and digested */
    void *progress_user;
} stasis_model_options;

/* Bits of stasis_model_info.flags. */
#define STASIS_MODEL_CONVERTED 1u /* weights were stored wider than bf16 and rounded to it */
#define STASIS_MODEL_TOKENIZER 2u /* the model has a tokenizer */

/* Pointers in it belong to the model and live as long as it does. */
typedef struct stasis_model_info {
    uint32_t struct_size;
    uint32_t flags;
    char architecture[32];
    uint32_t layers;
    uint32_t hidden; /* width of the residual stream */
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t vocabulary;     /* rows of the output head; tokens are 0 .. vocabulary - 1 */
    uint64_t context;        /* the model's maximum position count */
    uint32_t page_positions; /* positions in a KV page */
    uint32_t threads;
    uint32_t contract[3];    /* versions of the numerics contract: core, KV, sampling */
    uint32_t end_token_count;
    const stasis_token *end_tokens;
    const uint32_t *layer_windows; /* [layers], positions a query sees, 0: all */
    int64_t bos;                   /* -1: none */
    char kernels[32];
    char device[32];
    char chat_template[32]; /* "": none recognised */
    stasis_digest model;    /* identity of all that determines results */
    stasis_digest embeddings;
    stasis_digest norms;
    stasis_digest head;
    stasis_digest tokenizer;        /* zero: none */
    const stasis_digest *attention; /* [layers] */
    const stasis_digest *mlp;       /* [layers] */
} stasis_model_info;

typedef struct stasis_model_stats {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t kv_budget_bytes; /* UINT64_MAX: no limit */
    uint64_t kv_used_bytes;   /* in pages that sessions hold */
    uint64_t kv_cached_bytes; /* in free pages kept for reuse; within the budget */
    uint64_t kv_shared_bytes; /* in pages that more than one session holds */
    uint64_t scratch_bytes;   /* work space of forward passes */
} stasis_model_stats;

STASIS_API void stasis_model_options_init(stasis_model_options *options, size_t size);

/* Opens a Hugging Face directory: config.json, safetensors, and where present generation_config.json,
 * tokenizer.model, tokenizer_config.json, chat_template.jinja. bf16 weights stay mapped: the files
 * must not be changed while the model or a session of it lives (size and time are checked again
 * before use; a change that hides from both cannot be noticed). Release with stasis_model_close.
 * INVALID_ARGUMENT, NOT_FOUND, IO, NO_MEMORY, UNSUPPORTED (architecture, tensor, dtype, activation,
 * kernels: named), CORRUPT, NONFINITE (a weight), DEVICE, CANCELLED, STOPPED. */
STASIS_API stasis_status stasis_model_open(const char *path, const stasis_model_options *options,
                                           stasis_model **model, stasis_error *error);
/* Sessions keep the model alive; NULL is ignored. */
STASIS_API void stasis_model_close(stasis_model *model);
STASIS_API stasis_status stasis_model_get_info(const stasis_model *model, stasis_model_info *info,
                                               stasis_error *error);
STASIS_API stasis_status stasis_model_get_stats(const stasis_model *model, stasis_model_stats *stats,
                                                stasis_error *error);

/* ---- Text ------------------------------------------------------------------------------------ *
 * A model without a tokenizer answers STASIS_UNSUPPORTED to all of these. */

#define STASIS_TOKENIZE_BOS 1u     /* begin with the beginning-of-sequence token */
#define STASIS_TOKENIZE_SPECIAL 2u /* markers in the text become their special tokens; without it
                                      they are plain text, so that a user cannot forge a turn */
#define STASIS_DETOKENIZE_SPECIAL 1u /* special tokens give their marker; without it, nothing */
#define STASIS_DETOKENIZE_MIDDLE 2u  /* as in the middle of a text: keep a leading space */
#define STASIS_DETOKENIZE_PIECE 4u   /* of one token: the piece as the vocabulary spells it */

/* INVALID_ARGUMENT (invalid UTF-8: byte offset named), BUFFER_TOO_SMALL. */
STASIS_API stasis_status stasis_model_tokenize(const stasis_model *model, const char *text,
                                               size_t length, uint32_t flags, stasis_token *tokens,
                                               size_t capacity, size_t *count, stasis_error *error);
/* The bytes may be incomplete UTF-8 where a character is split across tokens. */
STASIS_API stasis_status stasis_model_detokenize(const stasis_model *model,
                                                 const stasis_token *tokens, size_t count,
                                                 uint32_t flags, char *text, size_t capacity,
                                                 size_t *length, stasis_error *error);

typedef struct stasis_message {
    uint32_t struct_size;
    uint32_t reserved;
    const char *role; /* "system", "user", "assistant", or what else the template knows */
    const char *text;
    size_t length;
} stasis_message;

#define STASIS_RENDER_REPLY 1u /* end with the prompt for a reply */

/* A whole conversation through the model's chat template. INVALID_ARGUMENT where the template
 * refuses the order of roles; UNSUPPORTED where none was recognised. */
STASIS_API stasis_status stasis_model_render(const stasis_model *model,
                                             const stasis_message *messages, size_t stride,
                                             size_t count, uint32_t flags, char *text,
                                             size_t capacity, size_t *length, stasis_error *error);

/* ---- Sessions -------------------------------------------------------------------------------- */

#define STASIS_WINDOW_RETAIN_NONE UINT64_MAX

typedef struct stasis_session_options {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t capacity;      /* positions it may reach; 0: the model's context, which is the most */
    uint64_t reserve;       /* positions whose memory is taken at once; 0: as they come */
    uint64_t window_retain; /* positions that local layers keep beyond their window, so that rewind
                               reaches back; 0: one window; STASIS_WINDOW_RETAIN_NONE: none */
} stasis_session_options;

/* Receives the logits of an appended position; `logits` [count] lives until the callback returns.
 * A non-zero return ends the call with STASIS_STOPPED. */
typedef int32_t (*stasis_logits_fn)(void *user, uint64_t position, const float *logits,
                                    size_t count);

typedef struct stasis_run_options {
    uint32_t struct_size;
    uint32_t chunk; /* positions computed together; 0: the library chooses. No influence on results */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* positions of this call */
    void *progress_user;
    stasis_logits_fn logits; /* NULL: none */
    void *logits_user;
} stasis_run_options;

/* 0 means off, except where a comment says otherwise; a zeroed struct is greedy. */
typedef struct stasis_sampling {
    uint32_t struct_size;
    uint32_t top_k;
    float temperature; /* 0: greedy */
    float top_p;       /* 0 or 1: off */
    float min_p;
    float repetition_penalty; /* 0 or 1: off */
    float frequency_penalty;
    float presence_penalty;
    uint32_t penalty_window; /* tokens that penalties look back on; 0: 64; UINT32_MAX: all */
    uint32_t bias_count;
    const stasis_token *bias_tokens; /* [bias_count] */
    const float *bias;               /* [bias_count], added to the logit; -INFINITY forbids */
    uint64_t seed;                   /* draws depend on (seed, position) and nothing else */
} stasis_sampling;

typedef struct stasis_session_info {
    uint32_t struct_size;
    uint32_t window;        /* of local layers; 0: the model has none */
    uint64_t position;      /* tokens in the log; the next token takes this position */
    uint64_t capacity;
    uint64_t rewind_floor;  /* lowest position that rewind reaches without recomputing */
    uint64_t window_retain;
    uint64_t window_begin;  /* first position whose keys and values all layers still hold */
    uint64_t pages_own;     /* KV pages that only this session holds */
    uint64_t pages_shared;  /* KV pages that other sessions hold too */
    uint64_t kv_bytes;      /* of both */
    uint64_t pending_bytes; /* system text that waits for the first user turn */
} stasis_session_info;

/* Sources of a token, as stasis_session_tokens gives them. */
#define STASIS_SOURCE_PROMPT 0u   /* given as tokens by the caller */
#define STASIS_SOURCE_TEMPLATE 1u /* added by the chat template */
#define STASIS_SOURCE_TEXT 2u     /* text of a message */
#define STASIS_SOURCE_SAMPLED 3u  /* drawn */

STASIS_API void stasis_session_options_init(stasis_session_options *options, size_t size);
STASIS_API void stasis_run_options_init(stasis_run_options *options, size_t size);
STASIS_API void stasis_sampling_init(stasis_sampling *sampling, size_t size);

/* INVALID_ARGUMENT (capacity above the context), NO_MEMORY, POOL_EXHAUSTED (reserve). */
STASIS_API stasis_status stasis_session_create(stasis_model *model,
                                               const stasis_session_options *options,
                                               stasis_session **session, stasis_error *error);
/* Must not run while another call uses the session; NULL is ignored. */
STASIS_API void stasis_session_free(stasis_session *session);

/* Appends tokens at the session's position: all of them or, on any failure, none. INVALID_ARGUMENT
 * (a token outside the vocabulary: index and id named), FULL, POOL_EXHAUSTED, NONFINITE, NO_MEMORY,
 * IO (the model's files changed), BUSY, CANCELLED, STOPPED. */
STASIS_API stasis_status stasis_session_append(stasis_session *session, const stasis_token *tokens,
                                               size_t count, const stasis_run_options *options,
                                               stasis_error *error);

#define STASIS_MESSAGE_REPLY 1u /* follow the message with the prompt for a reply */

/* Renders one turn through the chat template and appends it; history is never rendered or tokenized
 * again. Adds bos before the first turn where the template has it, and first closes a reply that
 * still stands open, with the template's own end. A system text that the template folds into the
 * first user turn waits in the session (and its snapshots). Further statuses as append, and
 * INVALID_ARGUMENT for an order of roles that the template refuses, UNSUPPORTED without template. */
STASIS_API stasis_status stasis_session_append_message(stasis_session *session, const char *role,
                                                       const char *text, size_t length,
                                                       uint32_t flags,
                                                       const stasis_run_options *options,
                                                       stasis_error *error);

/* Logits of the next token, [vocabulary], computed from the kept final hidden state: the same bits
 * whenever they are asked for. NOT_FOUND before the first position. BUFFER_TOO_SMALL. After a rewind
 * the last token is run again first; that is why sampling calls can return append's statuses. */
STASIS_API stasis_status stasis_session_logits(const stasis_session *session, float *logits,
                                               size_t capacity, size_t *count, stasis_error *error);
/* The n most likely next tokens, best first, ties by lower id, with natural-log probabilities
 * (may be NULL). INVALID_ARGUMENT if n exceeds the vocabulary. NOT_FOUND. */
STASIS_API stasis_status stasis_session_top(const stasis_session *session, size_t n,
                                            stasis_token *tokens, float *log_probabilities,
                                            stasis_error *error);
/* Natural-log probability of each token of a continuation, [count]; the session is unchanged. */
STASIS_API stasis_status stasis_session_score(stasis_session *session, const stasis_token *tokens,
                                              size_t count, double *log_probabilities,
                                              const stasis_run_options *options,
                                              stasis_error *error);

STASIS_API stasis_status stasis_session_set_sampling(stasis_session *session,
                                                     const stasis_sampling *sampling,
                                                     stasis_error *error);
/* Draws the next token and changes nothing: the draw at a position is always the same. */
STASIS_API stasis_status stasis_session_sample(const stasis_session *session, stasis_token *token,
                                               stasis_error *error);
/* Draws the next token and appends it. */
STASIS_API stasis_status stasis_session_decode(stasis_session *session, stasis_token *token,
                                               stasis_error *error);

/* A token that generate has appended. `text` (may be empty) is what can be shown since the last one:
 * complete UTF-8 characters, nothing that may yet turn out to be a stop string. A last event with
 * `last` set carries text that was held back; its token is the last one again. */
typedef struct stasis_generated {
    uint32_t struct_size;
    stasis_token token;
    uint64_t position; /* of the token */
    const char *text;
    size_t length;
    uint32_t last;
    uint32_t reserved;
} stasis_generated;

/* A non-zero return stops; the token stays. */
typedef int32_t (*stasis_generate_fn)(void *user, const stasis_generated *generated);

#define STASIS_GENERATE_IGNORE_END 1u /* the model's own end tokens do not stop */

typedef struct stasis_generate_options {
    uint32_t struct_size;
    uint32_t flags;
    uint64_t tokens_max; /* 0: until the session is full */
    const stasis_token *stop_tokens; /* besides the model's end tokens */
    size_t stop_token_count;
    const char *const *stop_strings; /* zero-terminated */
    size_t stop_string_count;
    stasis_generate_fn callback; /* NULL: none */
    void *callback_user;
    stasis_cancel *cancel;
} stasis_generate_options;

/* Stop reasons. */
#define STASIS_STOP_LENGTH 0u      /* tokens_max, or the session is full */
#define STASIS_STOP_END_TOKEN 1u   /* an end or stop token; it is in the log, not in the text */
#define STASIS_STOP_STRING 2u      /* a stop string; its tokens are in the log */
#define STASIS_STOP_CALLBACK 3u    /* the callback; the status is STASIS_STOPPED */
#define STASIS_STOP_CANCELLED 4u   /* the cancel handle; the status is STASIS_CANCELLED */

typedef struct stasis_generate_result {
    uint32_t struct_size;
    uint32_t stop_reason;
    uint64_t begin; /* position of the first new token */
    uint64_t count; /* new tokens; whatever ended the call, they stay */
} stasis_generate_result;

STASIS_API void stasis_generate_options_init(stasis_generate_options *options, size_t size);

/* Decodes until something stops it. `result` (may be NULL) is filled whatever the status. */
STASIS_API stasis_status stasis_session_generate(stasis_session *session,
                                                 const stasis_generate_options *options,
                                                 stasis_generate_result *result,
                                                 stasis_error *error);

/* A second session with the same state. Copies no page: the cost does not depend on the length.
 * Both go on independently, also at the same time in different threads. */
STASIS_API stasis_status stasis_session_fork(const stasis_session *session, stasis_session **child,
                                             stasis_error *error);

#define STASIS_REWIND_RECOMPUTE 1u /* below the floor, compute local layers again from the log */

/* Goes back to `position`: tokens from there on are gone, as if they had never been. Settings stay.
 * INVALID_ARGUMENT beyond the position; UNSUPPORTED below the floor (named) without the flag. */
STASIS_API stasis_status stasis_session_rewind(stasis_session *session, uint64_t position,
                                               uint32_t flags, const stasis_run_options *options,
                                               stasis_error *error);

/* Copies keys and values of positions [begin, end) of a layer, bf16, each [end - begin][kv_heads]
 * [head_dim]; `capacity` and `*count` are elements of one of the two. NOT_FOUND: released. */
STASIS_API stasis_status stasis_session_kv(const stasis_session *session, uint32_t layer,
                                           uint64_t begin, uint64_t end, uint16_t *keys,
                                           uint16_t *values, size_t capacity, size_t *count,
                                           stasis_error *error);
STASIS_API stasis_status stasis_session_get_info(const stasis_session *session,
                                                 stasis_session_info *info, stasis_error *error);
/* Tokens from `begin` to the end, with their sources (either may be NULL). */
STASIS_API stasis_status stasis_session_tokens(const stasis_session *session, uint64_t begin,
                                               stasis_token *tokens, uint8_t *sources,
                                               size_t capacity, size_t *count, stasis_error *error);
/* Text of positions [begin, end), special tokens left out, an incomplete last character held back. */
STASIS_API stasis_status stasis_session_text(const stasis_session *session, uint64_t begin,
                                             uint64_t end, char *text, size_t capacity,
                                             size_t *length, stasis_error *error);
/* SHA-256 over the state: model, tokens, keys and values of every position, final hidden state. Equal
 * digests: the same from here on, whatever history, device or file the sessions came through. */
STASIS_API stasis_status stasis_session_digest(const stasis_session *session, stasis_digest *digest,
                                               stasis_error *error);

/* ---- Snapshots ------------------------------------------------------------------------------- *
 * One file holds everything that is needed to continue except the model's files (format/FORMAT.md).
 * Files are created with mode 0600. */

#define STASIS_SAVE_REPLACE 1u /* put the snapshot in the place of any file, whatever it holds */
#define STASIS_SAVE_FULL_LOGITS 2u /* keep the whole row of logits beside the hidden state */

typedef struct stasis_save_options {
    uint32_t struct_size;
    uint32_t flags;
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* bytes written */
    void *progress_user;
} stasis_save_options;

typedef struct stasis_load_options {
    uint32_t struct_size;
    uint32_t reserved;
    const stasis_session_options *session; /* NULL: capacity and window_retain as saved */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* bytes read */
    void *progress_user;
} stasis_load_options;

typedef struct stasis_snapshot_info {
    uint32_t struct_size;
    uint32_t format; /* version */
    uint32_t contract[3];
    uint32_t page_positions;
    uint64_t position;
    uint64_t file_bytes;
    stasis_digest digest; /* of the state, as stasis_session_digest */
    stasis_digest root;   /* of the file: who keeps these 32 bytes can prove it */
    stasis_digest model;
} stasis_snapshot_info;

#define STASIS_NOWHERE UINT32_MAX /* no layer or head applies */

typedef struct stasis_difference {
    uint32_t struct_size;
    uint32_t equal;   /* 1: the states are equal and nothing below applies */
    uint32_t element; /* 1 .. 12, see stasis_snapshot_element */
    uint32_t layer;   /* STASIS_NOWHERE: none */
    uint32_t head;    /* KV head; STASIS_NOWHERE: none */
    uint32_t reserved;
    uint64_t position; /* UINT64_MAX: none */
    char message[256];
} stasis_difference;

typedef struct stasis_verify_options {
    uint32_t struct_size;
    uint32_t chunk;
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* positions */
    void *progress_user;
} stasis_verify_options;

typedef struct stasis_verify_report {
    uint32_t struct_size;
    uint32_t verified;  /* 1: every stored bit was reproduced; nothing but positions applies */
    uint64_t positions; /* recomputed */
    uint64_t position;  /* first that differs */
    uint32_t layer;     /* STASIS_NOWHERE: none */
    uint32_t element;   /* 1 .. 12 */
    char message[256];
} stasis_verify_report;

STASIS_API void stasis_save_options_init(stasis_save_options *options, size_t size);
STASIS_API void stasis_load_options_init(stasis_load_options *options, size_t size);
STASIS_API void stasis_verify_options_init(stasis_verify_options *options, size_t size);

/* Writes the session to `path`, whole or not at all (temporary file, fsync, rename, fsync of the
 * directory). An existing file is replaced if it is a snapshot of the same model whose log shares a
 * beginning with the session's, and otherwise only with STASIS_SAVE_REPLACE (INVALID_ARGUMENT).
 * IO (full disk included), NO_MEMORY, BUSY, CANCELLED, STOPPED. */
STASIS_API stasis_status stasis_session_save(stasis_session *session, const char *path,
                                             const stasis_save_options *options,
                                             stasis_error *error);
/* A new session that continues with the same bits. Everything is validated before it appears:
 * NOT_FOUND, IO, CORRUPT, VERSION, MODEL_MISMATCH, FULL (capacity asked for), POOL_EXHAUSTED, ... */
STASIS_API stasis_status stasis_session_load(stasis_model *model, const char *path,
                                             const stasis_load_options *options,
                                             stasis_session **session, stasis_error *error);

/* Opens a file for inspection, without a model. NOT_FOUND, IO, CORRUPT, VERSION, NO_MEMORY. */
STASIS_API stasis_status stasis_snapshot_open(const char *path, stasis_snapshot **snapshot,
                                              stasis_error *error);
STASIS_API void stasis_snapshot_close(stasis_snapshot *snapshot); /* NULL is ignored */
STASIS_API stasis_status stasis_snapshot_get_info(const stasis_snapshot *snapshot,
                                                  stasis_snapshot_info *info, stasis_error *error);
/* One of the Big 8 + 4 as a JSON object: 1 KV cache, 2 token embeddings, 3 positional state, 4 input
 * token buffer, 5 attention mask, 6 model config snapshot, 7 LayerNorm state, 8 attention module
 * weights, 9 logits, 10 tokenizer state, 11 KV format version, 12 prompt injection meta. */
STASIS_API stasis_status stasis_snapshot_element(const stasis_snapshot *snapshot, uint32_t element,
                                                 char *json, size_t capacity, size_t *length,
                                                 stasis_error *error);
STASIS_API stasis_status stasis_snapshot_tokens(const stasis_snapshot *snapshot, uint64_t begin,
                                                stasis_token *tokens, uint8_t *sources,
                                                size_t capacity, size_t *count,
                                                stasis_error *error);
/* The first difference: identity and settings, then tokens, then keys and values by position. */
STASIS_API stasis_status stasis_snapshot_compare(const stasis_snapshot *a, const stasis_snapshot *b,
                                                 stasis_difference *difference,
                                                 stasis_error *error);
/* Recomputes everything from the token log and compares it with what is stored. Filled report: OK
 * (verified) or DIVERGED; MODEL_MISMATCH if it is another model's, and append's statuses. */
STASIS_API stasis_status stasis_snapshot_verify(const stasis_snapshot *snapshot, stasis_model *model,
                                                const stasis_verify_options *options,
                                                stasis_verify_report *report, stasis_error *error);

#ifdef __cplusplus
}
#endif
#endif /* STASIS_H */
