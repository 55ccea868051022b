/* Stasis: an embeddable runtime for language-model sessions that can be frozen, copied, moved and
 * proven, bit for bit. This is the public header; it includes the others, which its end lists.
 * Their comments are the specification. NUMERICS.md (the contract), FORMAT.md (files) and
 * CONSTRAINTS.md are in share/doc/stasis.
 *
 * Results. A call that can fail returns a stasis_status and, if `error` is not NULL, fills it; on
 * success with STASIS_OK and an empty message. A failed or cancelled call leaves every object as it
 * was. It writes no handle; its other outputs have no meaning unless a comment gives them one. In
 * addition to the statuses listed at a function, each function may return INVALID_ARGUMENT (a NULL
 * where none is allowed, an impossible struct_size), UNSUPPORTED (a flag or option that this
 * version does not have), NO_MEMORY and INTERNAL; functions on sessions and snapshots may return
 * BUSY, and functions that use a GPU DEVICE. A comment names a status without its prefix STASIS_.
 *
 * Pointers. Inputs are used or copied before the call returns and are not kept, unless a comment
 * says so. An array may be NULL if its count is 0. Outputs must not be NULL unless a comment allows
 * it. Every object is released once, by the function declared with it; that function ignores NULL
 * and must not run while another call uses the object.
 *
 * Structs that begin with `struct_size` only ever grow at their end. Set it to sizeof before the
 * call; the _init functions do so and zero the rest. The library reads and writes at most that many
 * bytes. Missing fields count as 0, which always means the default. A non-zero tail that the
 * library does not have is UNSUPPORTED in inputs and zeroed in outputs. Options may be NULL, all 0.
 *
 * Text is UTF-8, passed as pointer and length in bytes; output is never zero-terminated. The
 * `capacity` of an output buffer is in elements; `*count` or `*length` is set to the required size.
 * If that exceeds the capacity, nothing is written and the status is BUFFER_TOO_SMALL. To ask for
 * the size, pass capacity 0; the buffer may then be NULL.
 *
 * Threads. Models and cancel handles are thread-safe. A session or snapshot serves one caller at a
 * time: a second one gets BUSY, or waits where that is short (stasis_generate.h, "Settled
 * sessions"). Callbacks run on the calling thread in its own floating-point environment, must
 * return, and get BUSY from the object whose call they interrupt. A calling thread needs
 * 512 KiB of stack beside what its callbacks use; a GPU's driver may need more.
 *
 * Process. The caller's floating-point environment does not influence results and is restored. The
 * library prints nothing, never aborts or exits, and does not touch signals. A child of fork() may
 * continue to use inherited objects, computing with one thread, unless another thread was inside a
 * call at that moment, and may open objects of its own: both processes compute the same bits. A GPU
 * serves only the process that opened it: in a child, calls that need it return DEVICE, and its
 * objects can still be released. */
#ifndef STASIS_H
#define STASIS_H
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#define STASIS_HEADER_VERSION 0x000200u /* 0xMMmmpp */

typedef int32_t stasis_status;
typedef uint32_t stasis_token;                  /* 0 .. vocabulary - 1 */
typedef struct stasis_model stasis_model;       /* immutable after open */
typedef struct stasis_session stasis_session;   /* one mutable timeline of tokens */
typedef struct stasis_snapshot stasis_snapshot; /* an opened snapshot file, read-only */
typedef struct stasis_cancel stasis_cancel;     /* cancels calls and reports their progress */
typedef struct stasis_threads stasis_threads;   /* a pool that models share: stasis_resources.h */
#pragma GCC visibility push(default)

/* Statuses; the numbers never change. */
#define STASIS_OK 0
#define STASIS_INVALID_ARGUMENT 1  /* an argument is out of its domain; the message names it */
#define STASIS_NOT_FOUND 2         /* no such file, position or state */
#define STASIS_IO 3                /* the operating system failed a file operation */
#define STASIS_NO_MEMORY 4         /* an allocation failed */
#define STASIS_UNSUPPORTED 5       /* valid, but not possible with this build or model */
#define STASIS_CORRUPT 6           /* the bytes of a file contradict each other */
#define STASIS_VERSION 7           /* a format or contract version this build cannot honour */
#define STASIS_MODEL_MISMATCH 8    /* snapshot and model differ; the message names the element */
#define STASIS_FULL 9              /* the session's capacity or the model's maximum position */
#define STASIS_BUSY 10             /* another call, or a generation, is running on the object */
#define STASIS_CANCELLED 11        /* stasis_cancel_request was called */
#define STASIS_DIVERGED 12         /* recomputation did not reproduce the stored bits */
#define STASIS_DEVICE 13           /* the device or its driver is missing or failed */
#define STASIS_STOPPED 14          /* a callback asked to stop */
#define STASIS_INTERNAL 15         /* a defect of the library */
#define STASIS_NONFINITE 16        /* a NaN or infinity; the message names layer and position */
#define STASIS_POOL_EXHAUSTED 17   /* the KV budget is in use at present; freeing sessions helps */
#define STASIS_BUFFER_TOO_SMALL 18 /* nothing was written except the required size */
#define STASIS_CONFLICT 19         /* the file, or the log, has other contents than expected */
#define STASIS_NO_TOKEN 20         /* none is left to draw: a constraint allows none */
#define STASIS_TIMEOUT 21          /* timeout_ms of the options has passed */

/* Layout frozen. `message` is zero-terminated UTF-8: what was expected, what was found, and where.
 * Bytes of a path that are not UTF-8 appear as \xNN. A message that is too long has "..." in place
 * of its middle. */
typedef struct stasis_error {
    stasis_status status;
    char message[508];
} stasis_error;

typedef struct stasis_digest { /* layout frozen; SHA-256 */
    uint8_t bytes[32];
} stasis_digest;

/* Long calls report progress from time to time, on the calling thread: `done` rises to `total`, in
 * computed positions or bytes of files; 0 of 0 while the total is unknown. `user` is passed on
 * unchanged. A non-zero return ends the call with STOPPED. */
typedef int32_t (*stasis_progress_fn)(void *user, uint64_t done, uint64_t total);

/* Returns the version of the library, 0xMMmmpp. Thread-safe. */
uint32_t stasis_version(void);
/* Returns "OK", "INVALID_ARGUMENT", ..., or "UNKNOWN": a static string. Thread-safe. */
const char *stasis_status_name(stasis_status status);

/* ---- Cancelling -------------------------------------------------------------------------------
 * One handle may be passed to any number of calls. A request is sticky: calls that observe it end
 * with CANCELLED until it is reset. Calls that append check it before each layer, generation checks
 * it between tokens. All functions below but create are thread-safe and ignore NULL. A running call
 * keeps its handle alive, so a handle may be released during the call. Request and reset store one
 * lock-free flag and do nothing else: signal handlers may call them, whatever they interrupt. */
stasis_status stasis_cancel_create(stasis_cancel **cancel, stasis_error *error);
void stasis_cancel_request(stasis_cancel *cancel);
void stasis_cancel_reset(stasis_cancel *cancel);
/* Returns the progress of the last call that was given the handle, as reported to its callback; 0
 * of 0 before the first report. Either output may be NULL. */
void stasis_cancel_progress(const stasis_cancel *cancel, uint64_t *done, uint64_t *total);
void stasis_cancel_release(stasis_cancel *cancel);

/* ---- Models -------------------------------------------------------------------------------- */
/* The source of a model's bulk memory: KV pages, copied weights, workspaces. Bookkeeping uses the
 * C++ heap. `allocate` returns `size` bytes aligned to `alignment`, a power of two, or NULL, which
 * ends the call with NO_MEMORY. (So does a failure of the C++ heap, except inside libsentencepiece,
 * where it ends the process.) Both functions run on any thread, several at once. A successful
 * stasis_model_open copies the struct. `release` (may be NULL) is then called once with `user`,
 * after the last memory has been returned. */
typedef struct stasis_allocator {
    uint32_t struct_size, reserved; /* 0, as every field of that name */
    void *user;
    void *(*allocate)(void *user, size_t size, size_t alignment);
    void (*deallocate)(void *user, void *memory, size_t size, size_t alignment);
    void (*release)(void *user);
} stasis_allocator;

/* How a model is opened, see stasis_model_open. A struct of zeros is all defaults. */
typedef struct stasis_model_options {
    uint32_t struct_size;
    uint32_t threads;          /* threads that compute, the caller's included; 0: one per core */
    const char *device;        /* "cpu", "cuda" or "cuda:<number>"; NULL: cpu */
    const char *kernels;       /* "amx", "avx512bf16", "avx512vnni", "avx512", "avx2" or
                                  "reference"; NULL: the machine's fastest, or the GPU's own */
    uint64_t kv_budget_bytes;  /* limit for the KV pages of all sessions together; 0: no limit */
    const char *chat_template; /* "gemma", "chatml", "zephyr", "llama2", "llama3", "mistral",
                                  "phi3"; NULL: recognised from the model's files */
    const stasis_allocator *allocator; /* NULL: the C heap */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* bytes of weights: read and digested, and put in another order */
    void *progress_user;
    const char *profile; /* "contract" or "device", see stasis_model_open; NULL: contract */
    uint32_t copy_weights;   /* 1: no file stays mapped, see stasis_model_open; 0: mapped */
    uint32_t verify_weights; /* 1: read and hash them all, see stasis_model_open */
    uint64_t state_budget_bytes; /* of recurrent states, see stasis_session_rewind; 0: 512 MiB */
    const char *date; /* "2026-01-02", for chat templates that print today's; NULL: not known */
    stasis_threads *thread_pool; /* computes in place of own threads; `threads` must then be 0 */
    uint64_t timeout_ms; /* ends the call with TIMEOUT, see stasis_resources.h; 0: no limit */
} stasis_model_options;

#define STASIS_MODEL_CONVERTED 1u /* weights were stored wider than bf16 and rounded to it */
#define STASIS_MODEL_TOKENIZER 2u /* the model has a tokenizer */

/* What the pointers refer to is valid until the model is closed and its sessions are freed. */
typedef struct stasis_model_info {
    uint32_t struct_size, flags;
    char architecture[32];                              /* zero-terminated, as the other names */
    uint32_t layers, hidden, heads, kv_heads, head_dim; /* hidden: width of the residual stream */
    uint32_t vocabulary;              /* rows of the output head; tokens are 0 .. vocabulary - 1 */
    uint64_t context;                 /* most positions that the model allows */
    uint32_t page_positions, threads; /* positions in a KV page; threads that compute */
    uint32_t contract[3];             /* versions of the numerics contract: core, KV, sampling */
    uint32_t end_token_count;
    const stasis_token *end_tokens;
    const uint32_t *layer_windows; /* [layers], positions that a query sees; 0: all */
    int64_t bos;                   /* beginning-of-sequence token; -1: none */
    char kernels[32], device[32], chat_template[32];  /* template "": none was recognised */
    stasis_digest model;                              /* identity of all that determines results */
    stasis_digest embeddings, norms, head, tokenizer; /* all bytes 0: no tokenizer */
    const stasis_digest *attention, *mlp;             /* [layers] */
    const char *weight_types;         /* as stored: "Q4_K: 180 matrices, F32: 61 vectors" */
    uint64_t weight_bytes;            /* bytes of all weights in the files */
    char profile[192];                /* id of the device profile; "": the contract alone */
    const uint8_t *layer_recurrent;   /* [layers], 1: a recurrent state, no keys and values */
    uint64_t state_bytes;             /* of all recurrent layers' states at one position */
    uint32_t experts, experts_chosen; /* in a layer that has them, 0: none; for each token */
    uint32_t contract_recurrent, contract_experts; /* versions of these parts; 0: not used */
    const char *ignored; /* tensors that no result depends on: "model.visual: 3"; "": none */
    uint64_t mtp_bytes;  /* of the head that predicts further tokens, beside the others; 0: none */
    uint32_t global_kv_heads, global_head_dim; /* of layers without a window */
    const uint32_t *layer_keys; /* [layers], the layer whose keys and values each one uses */
} stasis_model_info;

/* Use of memory by the model and its sessions, in bytes. */
typedef struct stasis_model_stats {
    uint32_t struct_size, reserved;
    uint64_t kv_budget_bytes; /* the limit; UINT64_MAX: no limit */
    uint64_t kv_used_bytes;   /* bytes of pages that sessions hold */
    uint64_t kv_cached_bytes; /* of free pages kept for reuse, reclaimed when pages are needed */
    uint64_t kv_shared_bytes; /* saved by sharing: a page counts for every further session */
    uint64_t scratch_bytes;   /* workspace of forward passes; all that MTP heads take */
    uint64_t kv_known_bytes;  /* the part of kv_cached_bytes that the prefix cache finds by their
                                 tokens: appends of the same tokens take them again. The least
                                 recently used go first when pages are needed, and without a budget
                                 beyond 256 MiB */
    uint64_t kv_free_bytes;   /* for more pages: budget less kv_used_bytes; UINT64_MAX: no limit */
    uint64_t state_budget_bytes; /* the limit of stasis_model_options */
    uint64_t state_used_bytes;   /* of states that sessions and the prefix cache hold, each once */
    uint64_t state_cached_bytes; /* of memory kept for the next states */
} stasis_model_stats;

/* Fills a struct with defaults: struct_size is set to `size`, its sizeof, and the rest to 0.
 * Ignores NULL. So does every _init function. Thread-safe. */
void stasis_model_options_init(stasis_model_options *options, size_t size);
/* Opens a model. Sessions keep a closed model alive.
 *
 * Files. `path` is a Hugging Face directory (config.json, safetensors, if present
 * generation_config.json, tokenizer.model or else tokenizer.json (BPE of bytes, or Gemma 4's),
 * tokenizer_config.json, chat_template.jinja); or a GGUF file of version 2 or 3, the first of a
 * split one (NAME-00001-of-0000N.gguf): architectures llama, gemma3, gemma4, gemma-embedding,
 * qwen2, qwen3, qwen3moe, qwen35, qwen35moe, phi3, gpt-oss, lfm2, smollm3, mistral3, olmo2,
 * granitehybrid, types F32, F16, BF16, Q8_0, Q4_0 to Q6_K; CPU: Q2_K, Q3_K, IQ4_NL, IQ4_XS, MXFP4.
 *
 * Memory. Matrices of bf16 and embeddings of integers are mapped. Matrices of F16 and F32 are
 * copied as bf16, and bf16 experts of gpt-oss directories by row; other matrices of integers are
 * copied in the order of the kernels, the rest is read. A file that changes or is cut short
 * meanwhile ends the call with IO. Mapped files must not be written to while the model or one of
 * its sessions lives. Appends check their size and time, decoding every 64 tokens (IO); a change
 * that preserves both is not noticed, and access to a part that was cut off raises SIGBUS. Deleting
 * a file, or renaming another to its name, does no harm. With copy_weights the allocator's memory
 * has all; kernels avx2 to amx then take bf16 in 12 bits, without loss, to decode faster.
 *
 * Digests. To name a model, all its weights are hashed and checked, once: the digests of a model of
 * 64 MiB and more are kept in the user's cache directory ($XDG_CACHE_HOME/stasis/weights, else
 * $HOME/.cache/stasis/weights), 32 bytes for each tensor. A later call takes them if device, inode,
 * size, time of the last write and time of the last change of every file are those of that time, if
 * the files were three seconds old then, and if nobody else could write the entry. What is mapped
 * is then not read, integers in the kernels' order not hashed; the rest is compared. This trusts
 * the system's clock, whoever may write to that directory, and that the file system gives every
 * write a time and every file a number of its own: a write through another process's shared mapping
 * may get its time late, and images mounted in turn may repeat both. With verify_weights nothing is
 * trusted, and the entry is written anew. A cache that cannot be read or written is no error.
 *
 * Devices. On "cuda" weights and KV pages are in that GPU's memory, and results are the same, bit
 * for bit: sessions move between devices by save and load. More than 16 query heads for a KV head
 * and heads of more than 256 are UNSUPPORTED. `allocator` does not serve the GPU's memory. Cancel
 * requests are checked before a pass, or before a run of up to 16 generated tokens, and not during
 * it. The GPU's part is a library of its own, libstasis_cuda, opened when a model asks for it. A
 * session whose device failed stays as it was; what can still be read of it is returned.
 *
 * Profile "device" trades that for speed: the GPU vendor's library computes appends of 64 tokens
 * and more on tensor cores (weights of bf16; UNSUPPORTED on "cpu"). Results then depend on that
 * library, the GPU's kind and how tokens were divided among appends. Sessions record this: a model
 * of the same profile (stasis_model_info) resumes and verifies them bit for bit, and others refuse
 * them (VERSION). They share pages with their forks alone.
 *
 * Errors:
 *   NOT_FOUND    no such file
 *   IO           reading failed, or a file changed meanwhile
 *   CORRUPT      the bytes of a file contradict each other
 *   UNSUPPORTED  the architecture, rope, a tensor, a type, the activation, the tokenizer or the
 *                kernels, which the message names
 *   NONFINITE    a weight, which the message names
 *   DEVICE       libstasis_cuda, a driver or that GPU is missing or failed
 *   CANCELLED, STOPPED */
stasis_status stasis_model_open(const char *path, const stasis_model_options *options,
                                stasis_model **model, stasis_error *error);
/* Closes the model. Its memory is returned when its last session is freed. */
void stasis_model_close(stasis_model *model);
/* Describes the model; pointers in `info` are into the model. Thread-safe. */
stasis_status stasis_model_get_info(const stasis_model *model, stasis_model_info *info,
                                    stasis_error *error);
/* Reports the model's use of memory at this moment. Thread-safe. */
stasis_status stasis_model_get_stats(const stasis_model *model, stasis_model_stats *stats,
                                     stasis_error *error);

/* ---- Text -------------------------------------------------------------------------------------
 * Thread-safe. A model without a tokenizer (render: without a template) is UNSUPPORTED. */
#define STASIS_TOKENIZE_BOS 1u       /* begin with the beginning-of-sequence token */
#define STASIS_TOKENIZE_SPECIAL 2u   /* markers in the text are special tokens; else plain text */
#define STASIS_DETOKENIZE_SPECIAL 1u /* special tokens give their marker; else nothing */
#define STASIS_DETOKENIZE_MIDDLE 2u  /* as in the middle of a text: keep a leading space */
#define STASIS_DETOKENIZE_PIECE 4u   /* of one token: the piece as the vocabulary spells it */
/* Converts text to tokens. INVALID_ARGUMENT: invalid UTF-8; the message names the byte offset. */
stasis_status stasis_model_tokenize(const stasis_model *model, const char *text, size_t length,
                                    uint32_t flags, stasis_token *tokens, size_t capacity,
                                    size_t *count, stasis_error *error);
/* Converts tokens to text. The bytes may be incomplete UTF-8 where a character is split across
 * tokens. INVALID_ARGUMENT: a token that the tokenizer does not have, or PIECE with a count other
 * than 1. */
stasis_status stasis_model_detokenize(const stasis_model *model, const stasis_token *tokens,
                                      size_t count, uint32_t flags, char *text, size_t capacity,
                                      size_t *length, stasis_error *error);

/* ---- Sessions ---------------------------------------------------------------------------------
 * Sessions of one model and one domain share their full KV pages (page_positions of
 * stasis_model_info), as long as a session holds them or the model's prefix cache keeps them. An
 * append whose tokens continue a page as they did before takes the next page instead of computing
 * it: with the same bits, in about the time of a fork. A system prompt of a thousand sessions is
 * thus computed and stored once; tokens_reused of stasis_session_info reports it. The contents of a
 * page depend on all tokens up to its end, and all of them are compared. The page where token
 * sequences diverge, and a final partial page, are always computed; so are positions whose logits a
 * call asks for. Reuse is visible in the time that an append takes: sessions that must not learn of
 * each other's tokens need separate domains. */
#define STASIS_WINDOW_RETAIN_NONE UINT64_MAX
#define STASIS_TRACK_TOTAL 1u   /* attention of all layers and query heads together */
#define STASIS_TRACK_BY_HEAD 2u /* of each layer and query head, in as many times the memory */
#define STASIS_DOMAIN_COMMON UINT64_C(0)
#define STASIS_DOMAIN_PRIVATE UINT64_MAX
/* Settings of a session, fixed when it is created. Of the two sets of factors of a model with long
 * RoPE (Phi-3.5, Phi-4-mini), a session gets the long ones if its capacity exceeds the model's
 * original context. It, its forks and its files keep them, for keys held cannot change sides: the
 * original context is then the maximum of a session with the short ones. */
typedef struct stasis_session_options {
    uint32_t struct_size, reserved;
    uint64_t capacity;      /* most positions; 0: the maximum, which is the model's context */
    uint64_t reserve;       /* positions whose memory is taken at once; 0: as they are appended */
    uint64_t window_retain; /* positions that local layers keep beyond their window, so that rewind
                               reaches back; 0: one window; STASIS_WINDOW_RETAIN_NONE: none */
    uint32_t track_attention; /* STASIS_TRACK_..., see attention; 0: not tracked, at no cost */
    uint32_t reserved_1;      /* 0 */
    uint64_t domain;          /* pages are shared with sessions of the same number;
                                 STASIS_DOMAIN_PRIVATE: only with forks, which are of its domain */
} stasis_session_options;

/* Called with the logits of an appended position, [count], valid until it returns. A non-zero
 * return ends the call with STOPPED. */
typedef int32_t (*stasis_logits_fn)(void *user, uint64_t position, const float *logits,
                                    size_t count);

/* How a call computes positions. None of the options influences results. */
typedef struct stasis_run_options {
    uint32_t struct_size;
    uint32_t chunk; /* positions computed together; 0: chosen. Does not influence results; ignored
                       under a device profile */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* positions of this call */
    void *progress_user;
    stasis_logits_fn logits; /* called in ascending order of positions; NULL: none */
    void *logits_user;
    uint64_t timeout_ms; /* as in stasis_model_options */
} stasis_run_options;

/* A session at one moment. */
typedef struct stasis_session_info {
    uint32_t struct_size;
    uint32_t window;   /* of local layers; 0: the model has none */
    uint64_t position; /* tokens in the log; the next token takes this position */
    uint64_t capacity;
    uint64_t rewind_floor; /* lowest position that rewind reaches without recomputing */
    uint64_t window_retain;
    uint64_t window_begin; /* lowest position from which on windows have released nothing */
    uint64_t pages_own, pages_shared; /* KV pages held by this session alone, and by others too */
    uint64_t kv_bytes;                /* bytes of both */
    uint64_t pending_bytes;           /* system text that waits for the first user turn */
    uint64_t positions_evicted;
    uint64_t tokens_reused; /* positions that appends and loads took from pages of other sessions,
                               or of this one before a rewind; over its life, a fork's from 0 on */
    uint64_t positions_foreign; /* some positions below it are of another profile, and cannot be
                                   computed again (STASIS_LOAD_ANY_PROFILE); 0: none */
    uint32_t older, reserved;   /* 1: loaded with STASIS_LOAD_ACCEPT_OLDER from a file whose last
                            commit is damaged, or forked from such a session, and not saved since */
    uint64_t states; /* recurrent states that this session holds: the last, and checkpoints */
} stasis_session_info;

/* Source of a token. */
#define STASIS_SOURCE_PROMPT 0u   /* given as a token by the caller */
#define STASIS_SOURCE_TEMPLATE 1u /* added by the chat template */
#define STASIS_SOURCE_TEXT 2u     /* text of a message */
#define STASIS_SOURCE_SAMPLED 3u  /* drawn */

void stasis_session_options_init(stasis_session_options *options, size_t size);
void stasis_run_options_init(stasis_run_options *options, size_t size);

/* Creates an empty session.
 * Errors:
 *   INVALID_ARGUMENT  the capacity exceeds the context, or the reserve the capacity
 *   POOL_EXHAUSTED    the KV budget does not allow the reserve
 *   UNSUPPORTED       attention cannot be tracked: the capacity times layers times query heads
 *                     exceeds 2^32 - 1 */
stasis_status stasis_session_create(stasis_model *model, const stasis_session_options *options,
                                    stasis_session **session, stasis_error *error);
/* Frees the session and ends its trace. Its pages return to the model; pages that other sessions or
 * the prefix cache share stay. */
void stasis_session_free(stasis_session *session);

/* Appends tokens at the session's position: all of them or, on any failure, none.
 * Errors:
 *   INVALID_ARGUMENT  a token outside the vocabulary; the message names its index and id
 *   FULL              the session's capacity
 *   POOL_EXHAUSTED    the KV budget; reported before anything is computed, unless windows or other
 *                     threads need pages during the call
 *   NONFINITE         a NaN or infinity was computed
 *   IO                the model's files changed
 *   CANCELLED, STOPPED */
stasis_status stasis_session_append(stasis_session *session, const stasis_token *tokens,
                                    size_t count, const stasis_run_options *options,
                                    stasis_error *error);

#define STASIS_MESSAGE_REPLY 1u /* append the generation prompt after the message */
/* Renders one turn through the chat template and appends it; history is never rendered or tokenized
 * again. Adds bos before the first turn where the template has it, and first closes a reply that is
 * still open, with the template's own end. A system text that the template folds into the first
 * user turn waits in the session (and its snapshots). `role` is zero-terminated.
 * Errors:
 *   statuses of append
 *   INVALID_ARGUMENT  also an order of roles that the template refuses
 *   UNSUPPORTED       the model has no tokenizer or template */
stasis_status stasis_session_append_message(stasis_session *session, const char *role,
                                            const char *text, size_t length, uint32_t flags,
                                            const stasis_run_options *options, stasis_error *error);

/* Creates a second session with the same state and settings. Copies no page: the cost does not
 * depend on the length. Afterwards both sessions are independent, also on different threads at the
 * same time. The child has no trace. */
stasis_status stasis_session_fork(const stasis_session *session, stasis_session **child,
                                  stasis_error *error);

#define STASIS_REWIND_RECOMPUTE 1u /* below the floor, compute local layers again from the log */
/* Rewinds to `position`: tokens from there on are removed as if they had never been appended.
 * Sampling settings stay; a system text that waits for its user turn is dropped. 0 always works.
 * The state of recurrent layers cannot be cut. Sessions keep checkpoints of it, together within
 * state_budget_bytes, or two each: at every 256th of the last 4096 positions, ever fewer before.
 * The next call that needs the state computes again what follows the nearest one, and may return
 * the statuses of append.
 * Errors:
 *   INVALID_ARGUMENT  `position` is beyond the session's
 *   UNSUPPORTED       it is below the floor, which the message names, and the flag is not set
 *   statuses of append, with the flag */
stasis_status stasis_session_rewind(stasis_session *session, uint64_t position, uint32_t flags,
                                    const stasis_run_options *options, stasis_error *error);

/* Hides the keys and values of positions [begin, end), in all layers, from every later token. Pages
 * of 64 positions of which nothing is visible any more are released. Tokens keep their positions
 * and the log keeps its tokens. The range, and the position at which it was evicted, become part of
 * the log: of digests and snapshots, and of what verification and recomputation repeat. The logits
 * of the next token stay as they are. The rewind floor rises to this position: a rewind to it keeps
 * the eviction, one to a lower position computes without it. The range may include positions that
 * were evicted before; this has no effect. The session keeps the final hidden state of this
 * position, 2 bytes for each of its numbers. INVALID_ARGUMENT: begin > end, or end beyond the
 * session's position. UNSUPPORTED: evicting from a recurrent layer is impossible, for its state
 * holds all positions in the same numbers. Returns also the statuses of logits. */
stasis_status stasis_session_evict(stasis_session *session, uint64_t begin, uint64_t end,
                                   stasis_error *error);

/* Copies keys and values that a layer uses, of positions [begin, end), bf16, each [end - begin][KV
 * heads][their size]; `capacity` and `*count` are elements of one of them. UNSUPPORTED: the layer
 * is recurrent. NOT_FOUND: a position was released. INVALID_ARGUMENT: no such layer or position. */
stasis_status stasis_session_kv(const stasis_session *session, uint32_t layer, uint64_t begin,
                                uint64_t end, uint16_t *keys, uint16_t *values, size_t capacity,
                                size_t *count, stasis_error *error);
#define STASIS_ATTENTION_BY_HEAD 1u
/* Returns the accumulated attention of each position: for each query head of each layer, every
 * position since the beginning distributes 1 in total over itself and what it sees before it. The
 * sums are [position], or with the flag [layers][heads][position]; `capacity` and `*count` are
 * elements. They are in fixed point, in units of 2^-32, of weights rounded down, and so exact: the
 * same for the same tokens, however these were appended, forked, saved and loaded, or computed
 * together with others (NUMERICS.md, C10). An evicted position keeps its sum, which no longer
 * grows. After a rewind, and after a load, this call computes all tokens once more, which takes KV
 * pages meanwhile and cannot be cancelled.
 * Errors:
 *   UNSUPPORTED     the session does not track attention: it was not created with track_attention,
 *                   nor loaded with it or from a file saved with it; or, for the flag, not with
 *                   STASIS_TRACK_BY_HEAD
 *   POOL_EXHAUSTED  no KV pages for computing all tokens again */
stasis_status stasis_session_attention(const stasis_session *session, uint32_t flags,
                                       double *weights, size_t capacity, size_t *count,
                                       stasis_error *error);
/* Describes the session at this moment. */
stasis_status stasis_session_get_info(const stasis_session *session, stasis_session_info *info,
                                      stasis_error *error);
/* Returns tokens from `begin` to the end, with their sources (STASIS_SOURCE_...). Either array may
 * be NULL. INVALID_ARGUMENT: `begin` is beyond the session's position. */
stasis_status stasis_session_tokens(const stasis_session *session, uint64_t begin,
                                    stasis_token *tokens, uint8_t *sources, size_t capacity,
                                    size_t *count, stasis_error *error);
/* Returns the text of positions [begin, end) without special tokens and without an incomplete last
 * character. UNSUPPORTED without a tokenizer; INVALID_ARGUMENT: a range beyond the position. */
stasis_status stasis_session_text(const stasis_session *session, uint64_t begin, uint64_t end,
                                  char *text, size_t capacity, size_t *length, stasis_error *error);
/* Returns SHA-256 over the state: model, tokens, evictions, keys and values of every position,
 * final hidden state; not sources, not settings. Sessions with equal digests give the same bits
 * from this position on, whatever their history, device or file. As logits, less NOT_FOUND. */
stasis_status stasis_session_digest(const stasis_session *session, stasis_digest *digest,
                                    stasis_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#include "stasis_chat.h"       /* conversations with tools, in JSON */
#include "stasis_constraint.h" /* which texts may be drawn */
#include "stasis_data.h"       /* what a host keeps in a session; turns */
#include "stasis_describe.h"   /* what the library and a model say of themselves */
#include "stasis_embed.h"      /* texts as vectors */
#include "stasis_generate.h"   /* logits, sampling, generation, steps of many sessions */
#include "stasis_quantize.h"   /* models to GGUF files */
#include "stasis_resources.h"  /* shared threads, times of calls, models from sources */
#include "stasis_scheduler.h"  /* generation for many sessions at once */
#include "stasis_snapshot.h"   /* sessions to files and streams and back */
#include "stasis_store.h"      /* many sessions, what they share once */
#include "stasis_trace.h"      /* reports of what happens to a session's KV cache */
#endif                         /* STASIS_H */
