/* Stasis: an embeddable runtime for language-model sessions that can be frozen, copied, moved and
 * proven, bit for bit. The public header, with stasis_generate.h, stasis_snapshot.h,
 * stasis_trace.h and stasis_quantize.h, which it includes; their comments are the specification.
 * NUMERICS.md (the numerics contract) and FORMAT.md (the files) are installed in share/doc/stasis.
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
 * the object whose call they interrupt. A calling thread needs 512 KiB of stack, and beside that
 * what its callbacks take (a GPU's driver may want more). The caller's floating-point environment
 * has no influence on results and is left as found; nothing is printed, nothing aborts, exits or
 * touches signals. A child of fork() may go on with what it inherits, one thread computing, unless
 * another thread was inside a call at that moment, and with objects of its own: the same bits in
 * both processes. What a GPU computes for stays with the process that opened it: in a child, calls
 * that need the GPU are DEVICE, and objects can be released. */
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
#define STASIS_CONFLICT 19         /* somebody else has saved there meanwhile */

/* Frozen. `message` is zero-terminated UTF-8: what was expected, what was found, and where. Bytes
 * of a path that are not UTF-8 stand there as \xNN; of what is too long, "..." takes the middle. */
typedef struct stasis_error {
    stasis_status status;
    char message[508];
} stasis_error;

typedef struct stasis_digest { /* frozen; SHA-256 */
    uint8_t bytes[32];
} stasis_digest;

/* Called now and then by long calls, `done` rising to `total` (computed positions, bytes of files),
 * 0 of 0 while that is not known. A non-zero return ends the call with STOPPED. */
typedef int32_t (*stasis_progress_fn)(void *user, uint64_t done, uint64_t total);

uint32_t stasis_version(void);                        /* of the library, 0xMMmmpp */
const char *stasis_status_name(stasis_status status); /* "OK", ..., "UNKNOWN"; static */

/* ---- Cancelling -------------------------------------------------------------------------------
 * A handle may be given to any number of calls. A request is sticky: calls that see it end with
 * CANCELLED until it is reset; those that append look for it before each layer, generate between
 * tokens. All but create may be called from any thread at any time, and ignore NULL; a running call
 * keeps the handle alive, so that release may come while it runs. Request and reset store one
 * lock-free flag and nothing else: signal handlers may call them, whatever they interrupt. */
stasis_status stasis_cancel_create(stasis_cancel **cancel, stasis_error *error);
void stasis_cancel_request(stasis_cancel *cancel);
void stasis_cancel_reset(stasis_cancel *cancel);
/* Progress of the last call that was given the handle, as its callback gets it; 0 of 0 before the
 * first report. Either output may be NULL. */
void stasis_cancel_progress(const stasis_cancel *cancel, uint64_t *done, uint64_t *total);
void stasis_cancel_release(stasis_cancel *cancel);

/* ---- Models -------------------------------------------------------------------------------- */
/* Where a model's bulk memory comes from: KV pages, copied weights, scratch; bookkeeping uses the
 * C++ heap. `allocate` returns `size` bytes aligned to `alignment`, a power of two, or NULL: then
 * NO_MEMORY (of the C++ heap too, but for what libsentencepiece asks for: that ends the process).
 * Both run on any thread, several at once. A successful stasis_model_open copies the struct;
 * `release` (may be NULL) is then called once with `user`, when the last memory has come back. */
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
    const char *device;        /* "cpu", "cuda" or "cuda:<number>"; NULL: cpu */
    const char *kernels;       /* "amx", "avx512bf16", "avx512vnni", "avx512", "avx2" or
                                  "reference"; NULL: best, and what a GPU calls for */
    uint64_t kv_budget_bytes;  /* of all sessions' KV pages together; 0: no limit */
    const char *chat_template; /* "gemma", "chatml", "zephyr", "llama2", "llama3", "mistral",
                                  "phi3"; NULL: recognised from the model's files */
    const stasis_allocator *allocator; /* NULL: the C heap */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* bytes of weights: read and digested,
                                     and those put into another order */
    void *progress_user;
    const char *profile;   /* "contract" or "device", see stasis_model_open; NULL: contract */
    uint32_t copy_weights; /* 1: no file stays mapped, see stasis_model_open; 0: mapped */
    uint32_t reserved;     /* 0 */
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
    const char
        *weight_types;     /* as stored: "Q4_K: 180 matrices, Q6_K: 31 matrices, F32: 61 vectors" */
    uint64_t weight_bytes; /* of all of them in the files */
    char profile[192];     /* id of the device profile; "": the contract alone */
} stasis_model_info;

typedef struct stasis_model_stats {
    uint32_t struct_size, reserved;
    uint64_t kv_budget_bytes; /* the capacity; UINT64_MAX: no limit */
    uint64_t kv_used_bytes;   /* in pages that sessions hold */
    uint64_t kv_cached_bytes; /* in free pages kept for reuse; within the budget, and give way */
    uint64_t kv_shared_bytes; /* of used pages once more for each further session that holds them */
    uint64_t scratch_bytes;   /* work space of forward passes */
    uint64_t kv_known_bytes;  /* of the cached: pages that appends of the same tokens take again;
                                 the least recently used give way first, to pages that are needed,
                                 and without a budget to what exceeds 256 MiB */
    uint64_t kv_free_bytes;   /* what pages can still take: the budget less used bytes, because
                                 cached ones give way; UINT64_MAX: no limit */
} stasis_model_stats;

void stasis_model_options_init(stasis_model_options *options, size_t size);
/* Opens a model. `path` is a Hugging Face directory (config.json, safetensors, and where present
 * generation_config.json, tokenizer.model or else tokenizer.json (byte-level BPE),
 * tokenizer_config.json, chat_template.jinja); or a GGUF file of version 2 or 3, of a model that is
 * split the first of its files (NAME-00001-of-0000N.gguf): architectures llama, gemma3, qwen2,
 * qwen3 and phi3, types F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K and Q6_K.
 * Weights are mapped: matrices of bf16, and embeddings of integers. Those of F16 and F32 are copied
 * as bf16, those of integers, at their size, in the order in which kernels read them. All else is
 * read: files that change or are cut short while the model is opened end that with IO. Mapped files
 * must not be written to while the model or a session of it lives: size and time are checked again
 * by appends, by decoding every 64 tokens (IO), but a change that hides from both is not noticed,
 * and where a file was cut short, what looks at its lost part gets SIGBUS. That a file is deleted,
 * or another is renamed to its name, does no harm. With copy_weights nothing is mapped: the weights
 * lie in the allocator's memory, the files are closed, and what becomes of them is all the same.
 * On "cuda" weights and KV pages lie in that GPU's memory, and results are the same, bit for bit:
 * sessions go from one device to another by save and load. UNSUPPORTED are more than 16 query heads
 * for a KV head, and heads of more than 256; `allocator` is not asked for what lies there; a
 * request to cancel is looked for before a pass, or a run of up to 16 generated tokens, not in it.
 * The GPU's part is a library of its own, libstasis_cuda, opened when a model asks for it; DEVICE
 * if it, a driver or that GPU is missing or fails. A session whose device has failed stays as it
 * was before the call, and gives what can still be read.
 * Profile "device" trades that for speed: appends of 64 tokens and more are computed by the GPU
 * vendor's library on tensor cores (weights of bf16; UNSUPPORTED on "cpu"). Results then depend on
 * that library, the GPU's kind and how tokens were divided among appends. Sessions keep record of
 * it: they are resumed and verified bit for bit by a model of the same profile (stasis_model_info),
 * and refused by others (VERSION). They share pages with their forks alone.
 * Sessions keep a closed model alive. NOT_FOUND, IO, CORRUPT, UNSUPPORTED (architecture, rope,
 * tensor, type, activation, tokenizer, kernels: named), NONFINITE (a weight: named), DEVICE,
 * CANCELLED, STOPPED. */
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

/* ---- Sessions ---------------------------------------------------------------------------------
 * Sessions of one model and domain share their full pages of keys and values (page_positions of
 * stasis_model_info), as long as some session, or the model's cache of pages recently let go, has
 * them. An append whose tokens continue a page just as they once did takes the next page instead of
 * computing it: in about the time of a fork, the same bits. So a system prompt of a thousand
 * sessions is computed and held once; tokens_reused of stasis_session_info tells. What a page holds
 * depends on all tokens up to its end, and those are compared. A page in which the path parts, or
 * ends, is computed. Positions whose logits a call asks for are computed. Reuse can be seen in the
 * time an append takes: sessions that must not learn of each other's tokens need domains of their
 * own. */
#define STASIS_WINDOW_RETAIN_NONE UINT64_MAX
#define STASIS_TRACK_TOTAL 1u   /* of attention: of all layers and query heads together */
#define STASIS_TRACK_BY_HEAD 2u /* of each layer and query head; takes as many times the memory */
#define STASIS_DOMAIN_COMMON UINT64_C(0)
#define STASIS_DOMAIN_PRIVATE UINT64_MAX
typedef struct stasis_session_options {
    uint32_t struct_size, reserved;
    uint64_t capacity;      /* positions it may reach; 0: the model's context, which is the most */
    uint64_t reserve;       /* positions whose memory is taken at once; 0: as they come */
    uint64_t window_retain; /* positions that local layers keep beyond their window, so that rewind
                               reaches back; 0: one window; STASIS_WINDOW_RETAIN_NONE: none */
    uint32_t track_attention; /* STASIS_TRACK_*, for stasis_session_attention; 0: not, and then it
                                 costs nothing */
    uint32_t reserved_1; /* 0 */
    uint64_t domain;        /* shares pages with sessions of the same number; PRIVATE: with nobody
                               but its forks, which are of its domain */
} stasis_session_options;

/* Gets the logits of an appended position, [count], valid until it returns. Non-zero: STOPPED. */
typedef int32_t (*stasis_logits_fn)(void *user, uint64_t position, const float *logits,
                                    size_t count);

typedef struct stasis_run_options {
    uint32_t struct_size;
    uint32_t chunk; /* positions computed together; 0: chosen; no influence on results, under a
                       device profile not looked at */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* positions of this call */
    void *progress_user;
    stasis_logits_fn logits; /* NULL: none; ascending positions */
    void *logits_user;
} stasis_run_options;

typedef struct stasis_session_info {
    uint32_t struct_size;
    uint32_t window;   /* of local layers; 0: the model has none */
    uint64_t position; /* tokens in the log; the next token takes this position */
    uint64_t capacity;
    uint64_t rewind_floor; /* lowest position that rewind reaches without recomputing */
    uint64_t window_retain;
    uint64_t window_begin; /* first position from which on windows have released nothing */
    uint64_t pages_own, pages_shared; /* KV pages that only it holds, that others hold too */
    uint64_t kv_bytes;                /* of both */
    uint64_t pending_bytes;           /* system text that waits for the first user turn */
    uint64_t positions_evicted;
    uint64_t tokens_reused; /* positions that appends and loads took from pages of other sessions,
                               or of this one before a rewind; over its life, a fork's from 0 on */
    uint64_t positions_foreign; /* some below this one were computed under another profile (see
                                   STASIS_LOAD_ANY_PROFILE): they can neither be verified nor
                                   computed again; 0: none */
    uint32_t older;    /* 1: loaded with STASIS_LOAD_ACCEPT_OLDER from a file whose last commit is
                          damaged, or forked from such a session, and not saved since */
    uint32_t reserved; /* 0 */
} stasis_session_info;

#define STASIS_SOURCE_PROMPT 0u   /* of a token: given as tokens by the caller */
#define STASIS_SOURCE_TEMPLATE 1u /* added by the chat template */
#define STASIS_SOURCE_TEXT 2u     /* text of a message */
#define STASIS_SOURCE_SAMPLED 3u  /* drawn */

void stasis_session_options_init(stasis_session_options *options, size_t size);
void stasis_run_options_init(stasis_run_options *options, size_t size);

/* An empty session. INVALID_ARGUMENT (capacity above the context), POOL_EXHAUSTED (reserve),
 * UNSUPPORTED (attention of more than 2^32 - 1 positions, times layers, times query heads, by the
 * capacity, is not tracked). */
stasis_status stasis_session_create(stasis_model *model, const stasis_session_options *options,
                                    stasis_session **session, stasis_error *error);
void stasis_session_free(stasis_session *session);

/* Appends tokens at the session's position: all of them or, on any failure, none. INVALID_ARGUMENT
 * (a token outside the vocabulary: index and id named), FULL, POOL_EXHAUSTED (before anything is
 * computed, unless windows or other threads come to need pages on the way), NONFINITE, IO (the
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

/* From here on no token sees positions [begin, end): keys and values of all layers. Pages of 64
 * positions of which nothing is visible any more are released. Tokens keep their positions and the
 * log keeps its tokens; what was evicted, and at which position, becomes part of it: of digests, of
 * snapshots, and of what verification and recomputing repeat. The logits of the next token stay as
 * they are. The rewind floor rises to this position: a rewind to here keeps the eviction, one below
 * computes without it. What was evicted before may be in the range; it changes nothing. Keeps the
 * final hidden state of this position, 2 bytes for each of its numbers. INVALID_ARGUMENT: the range
 * is none, or ends beyond the position; statuses of logits. */
stasis_status stasis_session_evict(stasis_session *session, uint64_t begin, uint64_t end,
                                   stasis_error *error);

/* Copies keys and values of positions [begin, end) of a layer, bf16, each [end - begin][kv_heads]
 * [head_dim]; `capacity` and `*count` are elements of one of the two. NOT_FOUND: released. */
stasis_status stasis_session_kv(const stasis_session *session, uint32_t layer, uint64_t begin,
                                uint64_t end, uint16_t *keys, uint16_t *values, size_t capacity,
                                size_t *count, stasis_error *error);
#define STASIS_ATTENTION_BY_HEAD 1u
/* How much attention each position has received from all positions since the beginning: of each
 * query head of each layer, every position gives 1 in total, to itself and what it sees before it.
 * Summed, [position], or with the flag [layers][heads][position]; `capacity` and `*count` are
 * elements. The numbers are sums in fixed point, in units of 2^-32, of weights rounded down, and so
 * exact: the same for the same tokens, however they were appended, forked, saved and loaded, or
 * computed together with others (NUMERICS.md, C10). An evicted position keeps what
 * it had received and receives no more. After a rewind, and after a load, all tokens are computed
 * once more when this is called, which takes KV pages meanwhile and cannot be cancelled.
 * UNSUPPORTED unless the session was created with track_attention, or loaded with it or as it was
 * saved with it, for the flag STASIS_TRACK_BY_HEAD; POOL_EXHAUSTED. */
stasis_status stasis_session_attention(const stasis_session *session, uint32_t flags,
                                       double *weights, size_t capacity, size_t *count,
                                       stasis_error *error);
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
/* SHA-256 over the state: model, tokens, evictions, keys and values of every position, final hidden
 * state; not sources, not settings. Equal digests: the same from here on, whatever history, device
 * or file. Statuses of logits, but for NOT_FOUND. */
stasis_status stasis_session_digest(const stasis_session *session, stasis_digest *digest,
                                    stasis_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#include "stasis_generate.h" /* logits, sampling, generation, steps of many sessions */
#include "stasis_quantize.h" /* models to GGUF files */
#include "stasis_snapshot.h" /* sessions to files and streams and back */
#include "stasis_trace.h"    /* what happens to a session's KV cache */
#endif                       /* STASIS_H */
