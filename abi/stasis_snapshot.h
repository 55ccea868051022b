/* Snapshots: sessions to files and streams and back, and what can be learnt of a file without its
 * model or proven with it. Part of stasis.h, whose conventions hold here.
 *
 * One file holds everything that is needed to continue except the model's files (FORMAT.md).
 * Saving to it again appends what it does not hold yet; what was rewound stays in it until
 * stasis_snapshot_compact. */
#ifndef STASIS_SNAPSHOT_H
#define STASIS_SNAPSHOT_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Saving and loading -------------------------------------------------------------------- */
#define STASIS_SAVE_REPLACE 1u /* put the snapshot in the place of any file, whatever it holds */
#define STASIS_SAVE_FULL_LOGITS 2u /* keep the whole row of logits beside the hidden state */
#define STASIS_SAVE_IF_MATCH                                                                       \
    4u /* a file that is there must hold no token, or the state that this session, or the one it   \
          was forked from, loaded or saved last, in this file or another: CONFLICT if not, so that \
          of two who go on with one file neither overwrites what the other has added */

#define STASIS_CODEC_DEFAULT 0u /* raw; compact: ZSTD if any of the file is */
#define STASIS_CODEC_RAW 1u     /* keys and values as they are: saved and loaded fastest */
#define STASIS_CODEC_ZSTD 2u    /* compressed, about 0.7 of the size; loads to the same bits */

#define STASIS_KEEP_FULL 0u /* keys and values of all positions that the session still has */
#define STASIS_KEEP_NONE                                                                           \
    1u /* none of them: some 14 bytes a token, and loading computes them again */

typedef struct stasis_save_options {
    uint32_t struct_size, flags;
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* bytes of keys and values that are new to the file */
    void *progress_user;
    uint32_t codec; /* of what this call writes; what the file holds already stays as it is */
    uint32_t keep;  /* of the whole session */
} stasis_save_options;

#define STASIS_LOAD_NO_RECOMPUTE 1u /* refuse (UNSUPPORTED) a file without keys and values */
#define STASIS_LOAD_TRUSTED                                                                        \
    2u /* the caller vouches that the file's keys and values are those its tokens give, because    \
          this library wrote it or stasis_snapshot_verify found so: sessions that append the same  \
          tokens may take its pages. Without it only loads of files with the same pages share      \
          them: a file that lies must not lie to others. DIVERGED: pages of the same tokens are    \
          known, and differ */

#define STASIS_LOAD_ANY_PROFILE                                                                    \
    4u /* also what a model of another profile computed, which only such a model computes again:   \
          the session goes on under this one's, marked (positions_foreign of stasis_session_info) */

#define STASIS_LOAD_ACCEPT_OLDER                                                                   \
    8u /* also the state before the last commit, where the root of the last one is damaged: what   \
          that commit added is lost (older of stasis_session_info) */

typedef struct stasis_load_options {
    uint32_t struct_size, flags;
    const stasis_session_options *session; /* NULL: all but reserve as saved */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* bytes of keys and values, or positions where it recomputes */
    void *progress_user;
    const struct stasis_trace_options *trace; /* of the new session, its pages and LOAD told at the
                                                 end of the call; NULL: none */
} stasis_load_options;

/* Where a snapshot goes when it is not a file. `write` takes all `size_bytes` or returns non-zero:
 * the call then ends with IO and the sink has part of a snapshot, which no reader accepts. */
typedef struct stasis_sink {
    uint32_t struct_size, reserved;
    int32_t (*write)(void *user, const void *data, size_t size_bytes);
    void *user;
} stasis_sink;

/* Where one comes from. `read` waits for at least one byte and returns how many it put into `data`,
 * at most `size_bytes`; 0: there are no more; negative: it failed, and the call with it (IO). */
typedef struct stasis_source {
    uint32_t struct_size, reserved;
    int64_t (*read)(void *user, void *data, size_t size_bytes);
    void *user;
} stasis_source;

void stasis_save_options_init(stasis_save_options *options, size_t size);
void stasis_load_options_init(stasis_load_options *options, size_t size);

/* Saves the session to `path`, whole or not at all, whatever happens meanwhile. A new file is made
 * with mode 0600 under another name, synced and renamed. To a snapshot of the same model whose log
 * shares a beginning with the session's, only the difference is appended and committed: it costs
 * what is new, after append, decode, fork or rewind alike. Any other file, and a damaged one, is
 * refused (INVALID_ARGUMENT) unless STASIS_SAVE_REPLACE puts a new one in its place; one whose last
 * commit is damaged also takes the session that was loaded from it with STASIS_LOAD_ACCEPT_OLDER,
 * and goes on from the older state: the damaged commit is overwritten. What the
 * session itself saved or loaded last is not read again while the file's identity, size and times
 * are as it left them: damage that hides from these is found by the next load. BUSY: another save
 * of this file is running. CONFLICT (STASIS_SAVE_IF_MATCH, which REPLACE contradicts:
 * INVALID_ARGUMENT). IO (full disk included), UNSUPPORTED (STASIS_KEEP_NONE of a session with
 * positions_foreign: they cannot be computed again), CANCELLED, STOPPED; statuses of logits. */
stasis_status stasis_session_save(stasis_session *session, const char *path,
                                  const stasis_save_options *options, stasis_error *error);
/* The same as a stream, always whole; STASIS_SAVE_REPLACE and STASIS_SAVE_IF_MATCH mean nothing
 * here. What the sink was given can be loaded, and as a file committed to. IO (the sink failed),
 * CANCELLED, STOPPED; statuses of logits. */
stasis_status stasis_session_write(stasis_session *session, const stasis_sink *sink,
                                   const stasis_save_options *options, stasis_error *error);

/* A new session that continues with the same bits and settings. Everything is validated before it
 * appears, the model's identity before the bulk is read; nothing of the file stays in use. (That
 * the hidden state gives the stored logits is seen when they are first needed: DIVERGED.) If the
 * file was saved with STASIS_KEEP_NONE, its tokens are computed again within the call and must give
 * the digests it was saved with: DIVERGED names the first position and layer that do not.
 * Cancel and progress are looked at from the first byte on, at 0 of 0 while the file is opened.
 * NOT_FOUND, IO, CORRUPT (also where the root of the last commit is damaged: the message names the
 * commit before it, which STASIS_LOAD_ACCEPT_OLDER takes; a commit that a crash has left unfinished
 * is no damage), VERSION, MODEL_MISMATCH, FULL (beyond the capacity asked for),
 * POOL_EXHAUSTED, CANCELLED, STOPPED; where it recomputes, statuses of append. */
stasis_status stasis_session_load(stasis_model *model, const char *path,
                                  const stasis_load_options *options, stasis_session **session,
                                  stasis_error *error);
/* The same from a stream, up to the end of the snapshot and no further: more may follow. All of it
 * is in memory until the call returns. A file that was sent as it is can be read as well, if it is
 * sent to its end. */
stasis_status stasis_session_read(stasis_model *model, const stasis_source *source,
                                  const stasis_load_options *options, stasis_session **session,
                                  stasis_error *error);

/* ---- Files without their model -------------------------------------------------------------- */
#define STASIS_SNAPSHOT_DAMAGED_ROOT                                                               \
    1u /* one of the file's two root slots cannot be read, and this is the state of the other: it  \
          was torn by a crash, is of a commit before or, if `older` says so, is damaged */

typedef struct stasis_snapshot_info {
    uint32_t struct_size, format; /* version */
    uint32_t contract[3];         /* as the model's; sampling is 2 where settings need that */
    uint32_t page_positions;
    uint64_t position, file_bytes; /* of the state and all commits before it */
    stasis_digest digest;          /* of the state, as stasis_session_digest */
    stasis_digest root;            /* of the file: who keeps these 32 bytes can prove it */
    stasis_digest model;
    uint32_t flags;
    uint32_t keep;            /* STASIS_KEEP_... */
    uint32_t codec;           /* STASIS_CODEC_ZSTD if any keys and values are, else RAW */
    uint32_t reserved;        /* 0 */
    uint64_t commits;         /* saves to this file, this state's included, since it was made */
    uint64_t kv_bytes;        /* keys and values that are kept, as numbers */
    uint64_t kv_stored_bytes; /* what they take in the file */
    uint64_t positions_foreign; /* as of stasis_session_info */
    char profile[192];          /* as of stasis_model_info */
    uint64_t dead_bytes; /* of file_bytes, those of sections that this state does not refer to: what
                            was rewound and what earlier commits left; compacting removes them */
    uint32_t older; /* 1: the root of the last commit is damaged, and this is the state before it */
    uint32_t reserved_1; /* 0 */
} stasis_snapshot_info;

#define STASIS_NOWHERE UINT32_MAX /* no layer or head applies */
typedef struct stasis_difference {
    uint32_t struct_size, equal; /* 1: the states are equal and nothing below applies */
    uint32_t element;            /* 1 .. 12, see stasis_snapshot_element */
    uint32_t layer, head;        /* KV head; STASIS_NOWHERE: none */
    uint32_t reserved;
    uint64_t position; /* UINT64_MAX: none */
    char message[256]; /* zero-terminated */
} stasis_difference;

/* Opens a file for inspection, without a model. NOT_FOUND, IO, CORRUPT, VERSION; the calls below
 * may return IO and CORRUPT as well: they read on demand. */
stasis_status stasis_snapshot_open(const char *path, stasis_snapshot **snapshot,
                                   stasis_error *error);
/* The same from a stream, as stasis_session_read; the snapshot keeps all of it in memory. */
stasis_status stasis_snapshot_open_source(const stasis_source *source, stasis_snapshot **snapshot,
                                          stasis_error *error);
void stasis_snapshot_close(stasis_snapshot *snapshot);
stasis_status stasis_snapshot_get_info(const stasis_snapshot *snapshot, stasis_snapshot_info *info,
                                       stasis_error *error);
/* One of the Big 8 + 4 as a JSON object: 1 KV cache, 2 token embeddings, 3 positional state, 4
 * input token buffer, 5 attention mask, 6 model config snapshot, 7 LayerNorm state, 8 attention
 * module weights, 9 logits, 10 tokenizer state, 11 KV format version, 12 prompt injection meta.
 * It has at most 64 bytes for each byte of the file and 64 KiB more, whatever the file was forged
 * of: texts of the log (of its spans, of the best logits) are cut, U+2026 in their place, where
 * together they would be more than four times the file. Asking for the length builds nothing. */
stasis_status stasis_snapshot_element(const stasis_snapshot *snapshot, uint32_t element, char *json,
                                      size_t capacity, size_t *length, stasis_error *error);
stasis_status stasis_snapshot_tokens(const stasis_snapshot *snapshot, uint64_t begin,
                                     stasis_token *tokens, uint8_t *sources, size_t capacity,
                                     size_t *count, stasis_error *error);
/* The first difference: identity and settings, then tokens, then keys and values by position. */
stasis_status stasis_snapshot_compare(const stasis_snapshot *a, const stasis_snapshot *b,
                                      stasis_difference *difference, stasis_error *error);

/* Puts a new file in the place of `path` that holds its state and nothing else: what was rewound,
 * and what other commits left behind, is gone. Of the options cancel, progress and codec count;
 * keys and values are kept as they were. Whole or not at all, as a save. NOT_FOUND, IO, CORRUPT
 * (also where the root of the last commit is damaged), VERSION, BUSY, CANCELLED, STOPPED. */
stasis_status stasis_snapshot_compact(const char *path, const stasis_save_options *options,
                                      stasis_error *error);

/* ---- Proof ---------------------------------------------------------------------------------- */
typedef struct stasis_verify_options {
    uint32_t struct_size, chunk; /* as in stasis_run_options */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* positions */
    void *progress_user;
    double audit_percent; /* of the pages, those to recompute, up to 100; 0: the whole log */
    uint64_t audit_seed;  /* decides which; to be chosen after the file was made */
    uint32_t flags;       /* STASIS_VERIFY_... */
    uint32_t reserved;    /* 0 */
} stasis_verify_options;

#define STASIS_VERIFY_STRICT                                                                       \
    1u /* first the checksums of all that the file holds up to its state, dead bytes and both root \
          slots included: CORRUPT if one is wrong */

#define STASIS_KEYS 0u
#define STASIS_VALUES 1u
/* An audit draws audit_drawn of audit_pages pages. A change in n of these goes unnoticed with a
 * probability of at most C(audit_pages - n, audit_drawn) / C(audit_pages, audit_drawn). */
typedef struct stasis_verify_report {
    uint32_t struct_size;
    uint32_t verified;  /* 1: every bit compared was reproduced; no place of a divergence applies */
    uint64_t positions; /* recomputed */
    uint64_t position;  /* first that differs; UINT64_MAX: none */
    uint32_t layer;     /* STASIS_NOWHERE: none */
    uint32_t element;   /* 1 .. 12 */
    char message[256];  /* zero-terminated */
    uint32_t head, part;             /* KV head, STASIS_KEYS or _VALUES; STASIS_NOWHERE: none */
    uint64_t drawn, drawn_otherwise; /* tokens drawn again; those that came out differently */
    uint64_t audit_pages, audit_drawn;
    uint64_t unreachable_begin, unreachable_end; /* positions that the audit cannot recompute */
    uint64_t sections; /* of the file, that STASIS_VERIFY_STRICT has found right; else 0 */
    uint32_t older;    /* as of stasis_snapshot_info: what was saved last could not be verified */
    uint32_t reserved; /* 0 */
} stasis_verify_report;

void stasis_verify_options_init(stasis_verify_options *options, size_t size);
/* Recomputes everything from the token log and compares it with what is stored, drawn tokens
 * included. An audit recomputes some pages, each from the keys and values stored before it: beside
 * those drawn always the last one, with hidden state and logits; the first one needs nothing before
 * it. It cannot reach what local layers would need released pages for, nor anything but the first
 * page of a file without keys and values; with window_retain = capacity none is released. OK
 * (verified) or DIVERGED with the report filled; MODEL_MISMATCH if it is another model's; VERSION
 * (another profile's too); UNSUPPORTED (all of a state with positions_foreign; an audit begins
 * there); CORRUPT (STASIS_VERIFY_STRICT); statuses of append. */
stasis_status stasis_snapshot_verify(const stasis_snapshot *snapshot, stasis_model *model,
                                     const stasis_verify_options *options,
                                     stasis_verify_report *report, stasis_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif /* STASIS_SNAPSHOT_H */
