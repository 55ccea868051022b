/* Snapshots: sessions to files and streams and back, inspection of a file without its model, and
 * verification with it. Part of stasis.h, which states the conventions; include that.
 *
 * One file holds everything that is needed to continue except the model's files (FORMAT.md). Saving
 * to it again appends what it does not hold yet; data of rewound positions stays in it until
 * stasis_snapshot_compact. Files are safe to read while another process saves to them: a reader
 * sees the state before the save or the one after it. Any bytes are accepted as input: a file that
 * contradicts itself is CORRUPT, and no file ends the process. */
#ifndef STASIS_SNAPSHOT_H
#define STASIS_SNAPSHOT_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* ---- Saving and loading -------------------------------------------------------------------- */
#define STASIS_SAVE_REPLACE 1u /* replace the file, whatever it holds */
#define STASIS_SAVE_FULL_LOGITS 2u /* store the whole row of logits with the hidden state */
#define STASIS_SAVE_IF_MATCH                                                                       \
    4u /* an existing file must hold no token, or the state that this session, or the one it was   \
          forked from, loaded or saved last, in this file or another. Otherwise CONFLICT: of two   \
          sessions that continue one file, neither overwrites what the other has added */

#define STASIS_CODEC_DEFAULT 0u /* raw; for compact: ZSTD if any of the file is */
#define STASIS_CODEC_RAW 1u     /* keys and values as they are: saved and loaded fastest */
#define STASIS_CODEC_ZSTD 2u    /* compressed, about 0.7 of the size; loads to the same bits */

#define STASIS_KEEP_FULL 0u /* keys and values of all positions that the session still has */
#define STASIS_KEEP_NONE                                                                           \
    1u /* none of them: about 14 bytes a token, and loading computes them again */

/* How a session is saved. */
typedef struct stasis_save_options {
    uint32_t struct_size, flags;
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* bytes of keys and values that are new to the file */
    void *progress_user;
    uint32_t codec; /* of what this call writes; contents of the file stay as they are */
    uint32_t keep;  /* of the whole session */
    uint64_t timeout_ms; /* ends the call with TIMEOUT, see stasis_resources.h; 0: no limit */
} stasis_save_options;

#define STASIS_LOAD_NO_RECOMPUTE 1u /* refuse (UNSUPPORTED) a file without keys and values */
#define STASIS_LOAD_TRUSTED                                                                        \
    2u /* the caller vouches that the file's keys and values are those that its tokens give,       \
          because this library wrote it or stasis_snapshot_verify found so: sessions that append   \
          the same tokens may take its pages. Without the flag only loads of files with the same   \
          pages share them, so that a forged file affects no other session. DIVERGED: the prefix   \
          cache has pages of the same tokens, and they differ */

#define STASIS_LOAD_ANY_PROFILE                                                                    \
    4u /* accept what a model of another profile computed, which only such a model computes again: \
          the session continues under this model's, marked (positions_foreign of                   \
          stasis_session_info) */

#define STASIS_LOAD_ACCEPT_OLDER                                                                   \
    8u /* accept the state before the last commit if the last commit's root is damaged: what that  \
          commit added is lost (older of stasis_session_info) */

#define STASIS_LOAD_SKIP_KNOWN                                                                     \
    16u /* full pages of the same tokens that the prefix cache has under the digests that the      \
           file names are not read: the session has the bits that it would have, but whether the   \
           file or store still has these pages, and whole, a later load finds. All else is read    \
           and checked. Without the flag every page is read */

/* How a session is loaded. */
typedef struct stasis_load_options {
    uint32_t struct_size, flags;
    const stasis_session_options *session; /* NULL: all but reserve as saved */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* bytes of keys and values, or positions where it recomputes */
    void *progress_user;
    const struct stasis_trace_options *trace; /* of the new session; its pages and LOAD are reported
                                                 at the end of the call; NULL: none */
    uint64_t timeout_ms;                      /* as in stasis_save_options */
} stasis_load_options;

/* The destination of a snapshot that is not a file. `write` takes all `size_bytes` or returns
 * non-zero: the call then ends with IO, and the sink has part of a snapshot, which no reader
 * accepts. It runs on the calling thread; `data` is valid until it returns, and `user` is passed on
 * unchanged. */
typedef struct stasis_sink {
    uint32_t struct_size, reserved;
    int32_t (*write)(void *user, const void *data, size_t size_bytes);
    void *user;
} stasis_sink;

/* The origin of a snapshot that is not a file. `read` waits for at least one byte and returns how
 * many bytes it stored in `data`, at most `size_bytes`. It returns 0 at the end, and a negative
 * number on failure, which ends the call with IO. More than `size_bytes` ends it with
 * INVALID_ARGUMENT. It runs on the calling thread; `user` is passed on unchanged. */
typedef struct stasis_source {
    uint32_t struct_size, reserved;
    int64_t (*read)(void *user, void *data, size_t size_bytes);
    void *user;
} stasis_source;

/* Fill the structs with defaults, as every _init function of stasis.h. */
void stasis_save_options_init(stasis_save_options *options, size_t size);
void stasis_load_options_init(stasis_load_options *options, size_t size);

/* Saves the session to `path`, whole or not at all, even if the process or the machine fails. The
 * session itself is unchanged.
 *
 * A new file is created with mode 0600 under another name, synced and renamed. If the file is a
 * snapshot of the same model whose log shares a beginning with the session's, only the difference
 * is appended and committed: the cost depends on what is new, after append, decode, fork and rewind
 * alike. Any other file, and a damaged one, is refused unless STASIS_SAVE_REPLACE puts a new one in
 * its place. A file whose last commit is damaged also accepts the session that was loaded from it
 * with STASIS_LOAD_ACCEPT_OLDER, and continues from the older state: the damaged commit is
 * overwritten.
 *
 * The state that the session itself saved or loaded last is not read again while the file's
 * identity, size and times are unchanged: damage that preserves these is found by the next load.
 *
 * After a failure the file opens as it did before. One failure is later: if only the last sync
 * fails (IO), the message says that the new state is in place but may not survive a power loss.
 *
 * Errors:
 *   INVALID_ARGUMENT  the file is another's or damaged; or STASIS_SAVE_REPLACE together with
 *                     STASIS_SAVE_IF_MATCH
 *   BUSY              another save of this file is running
 *   CONFLICT          see STASIS_SAVE_IF_MATCH
 *   IO                a file operation failed, for example on a full disk
 *   UNSUPPORTED       STASIS_KEEP_NONE of a session with positions_foreign: they cannot be
 *                     computed again
 *   CANCELLED, STOPPED; statuses of logits */
stasis_status stasis_session_save(stasis_session *session, const char *path,
                                  const stasis_save_options *options, stasis_error *error);
/* Writes the session to a stream, always whole; STASIS_SAVE_REPLACE and STASIS_SAVE_IF_MATCH have
 * no effect. The written bytes can be loaded, and stored in a file they take commits.
 * Errors:
 *   IO                the sink failed
 *   INVALID_ARGUMENT  STASIS_SAVE_REPLACE together with STASIS_SAVE_IF_MATCH
 *   UNSUPPORTED       as of stasis_session_save
 *   CANCELLED, STOPPED; statuses of logits */
stasis_status stasis_session_write(stasis_session *session, const stasis_sink *sink,
                                   const stasis_save_options *options, stasis_error *error);

/* Creates a session that continues a saved one with the same bits and settings. Everything is
 * validated before the session is returned, the model's identity before the bulk is read; the file
 * is not used afterwards. One check comes later: whether the hidden state gives the stored logits
 * is checked when they are first needed (DIVERGED). The tokens of a file that was saved with
 * STASIS_KEEP_NONE are computed again within the call and must give the digests it was saved with.
 * Cancel requests and progress are served from the first byte on; progress is 0 of 0 while the file
 * is opened.
 * Errors:
 *   NOT_FOUND, IO    the file cannot be opened or read
 *   CORRUPT          the file is damaged. If only the root of the last commit is, the message names
 *                    the commit before it, which STASIS_LOAD_ACCEPT_OLDER loads; a commit that a
 *                    crash left unfinished is not damage
 *   VERSION          a format, contract version or profile that this build or model does not have
 *   MODEL_MISMATCH   another model saved it
 *   UNSUPPORTED      STASIS_LOAD_NO_RECOMPUTE of a file without keys and values; a capacity beyond
 *                    the original context for a session with the short factors of long RoPE
 *   FULL             the log exceeds the requested capacity
 *   POOL_EXHAUSTED   the KV budget
 *   DIVERGED         recomputing gives other digests: the message names the first position and
 *                    layer; or STASIS_LOAD_TRUSTED
 *   CANCELLED, STOPPED; statuses of append, if it recomputes */
stasis_status stasis_session_load(stasis_model *model, const char *path,
                                  const stasis_load_options *options, stasis_session **session,
                                  stasis_error *error);
/* Loads a session from a stream, up to the end of the snapshot and no further: more data may
 * follow. The whole snapshot is in memory until the call returns. A file can also be read, if it is
 * sent to its end and nobody saves to it meanwhile: a root that is caught half written cannot be
 * read again, as from a file, and is CORRUPT. Returns the statuses of load. */
stasis_status stasis_session_read(stasis_model *model, const stasis_source *source,
                                  const stasis_load_options *options, stasis_session **session,
                                  stasis_error *error);

/* ---- Files without their model -------------------------------------------------------------- */
#define STASIS_SNAPSHOT_DAMAGED_ROOT                                                               \
    1u /* one of the file's two root slots cannot be read, and this is the other one's state.      \
          The slot was torn by a crash, is of an earlier commit or, if `older` is 1, is damaged */

/* A snapshot's state, as far as it is known without a model. */
typedef struct stasis_snapshot_info {
    uint32_t struct_size, format; /* version of the file format */
    uint32_t contract[3];         /* as the model's; sampling is 2 if settings need it */
    uint32_t page_positions;
    uint64_t position, file_bytes; /* of the state and all commits before it */
    stasis_digest digest;          /* of the state, as stasis_session_digest */
    stasis_digest root;            /* of the file; these 32 bytes suffice to prove it */
    stasis_digest model;           /* as of stasis_model_info; another one of a session with the
                                      short factors of long RoPE */
    uint32_t flags;
    uint32_t keep;            /* STASIS_KEEP_... */
    uint32_t codec;           /* STASIS_CODEC_ZSTD if any keys and values are, or _RAW */
    uint32_t reserved;        /* 0 */
    uint64_t commits;         /* saves to this file since it was created, with this state's */
    uint64_t kv_bytes;        /* bytes of the kept keys and values, uncompressed */
    uint64_t kv_stored_bytes; /* bytes that they take in the file */
    uint64_t positions_foreign; /* as of stasis_session_info */
    char profile[192];          /* as of stasis_model_info */
    uint64_t dead_bytes; /* the part of file_bytes in sections that this state does not refer to,
                            left by rewinds and earlier commits; compacting removes them */
    uint32_t older; /* 1: the root of the last commit is damaged, and this is the state before it */
    uint32_t reserved_1; /* 0 */
} stasis_snapshot_info;

#define STASIS_NOWHERE UINT32_MAX /* no layer or head applies */
/* The first difference between two states. */
typedef struct stasis_difference {
    uint32_t struct_size, equal; /* 1: the states are equal and nothing below applies */
    uint32_t element;            /* 1 .. 12, see stasis_snapshot_element */
    uint32_t layer, head;        /* KV head; STASIS_NOWHERE: none */
    uint32_t reserved;
    uint64_t position; /* UINT64_MAX: none */
    char message[256]; /* zero-terminated */
} stasis_difference;

/* Opens a file for inspection, without a model. Data is read on demand: the functions below may
 * return IO and CORRUPT as well. The snapshot keeps the state that it was opened with, whatever is
 * saved to the file later, also after the file was replaced or deleted.
 * Errors:
 *   NOT_FOUND, IO  the file cannot be opened or read
 *   CORRUPT        the file is damaged
 *   VERSION        a format version that this build does not have */
stasis_status stasis_snapshot_open(const char *path, stasis_snapshot **snapshot,
                                   stasis_error *error);
/* Opens a stream for inspection, read as by stasis_session_read; the snapshot keeps all of it in
 * memory. Returns the statuses of stasis_snapshot_open, with IO for a source that failed. */
stasis_status stasis_snapshot_open_source(const stasis_source *source, stasis_snapshot **snapshot,
                                          stasis_error *error);
/* Closes the snapshot and its file. */
void stasis_snapshot_close(stasis_snapshot *snapshot);
/* Describes the state. Reads frames of the file, for dead_bytes. */
stasis_status stasis_snapshot_get_info(const stasis_snapshot *snapshot, stasis_snapshot_info *info,
                                       stasis_error *error);
/* Returns one of the Big 8 + 4 as a JSON object: 1 KV cache, 2 token embeddings, 3 positional
 * state, 4 input token buffer, 5 attention mask, 6 model config snapshot, 7 LayerNorm state, 8
 * attention module weights, 9 logits, 10 tokenizer state, 11 KV format version, 12 prompt injection
 * meta. The object has at most 64 bytes for each byte of the file plus 64 KiB, even if the file is
 * forged: if the texts of the log (of its spans, of the best logits) together exceed four times the
 * file, they are cut, with U+2026 in place of the rest. Asking for the length builds nothing.
 * INVALID_ARGUMENT: no such element. */
stasis_status stasis_snapshot_element(const stasis_snapshot *snapshot, uint32_t element, char *json,
                                      size_t capacity, size_t *length, stasis_error *error);
/* Returns the tokens from `begin` to the end, as stasis_session_tokens. */
stasis_status stasis_snapshot_tokens(const stasis_snapshot *snapshot, uint64_t begin,
                                     stasis_token *tokens, uint8_t *sources, size_t capacity,
                                     size_t *count, stasis_error *error);
/* Reports the first difference between two states, in the order identity and settings, tokens, keys
 * and values by position. `a` and `b` may be the same snapshot. Both are busy during the call.
 * Reads the keys and values of pages whose digests differ and no others. */
stasis_status stasis_snapshot_compare(const stasis_snapshot *a, const stasis_snapshot *b,
                                      stasis_difference *difference, stasis_error *error);

/* Replaces the file `path` by a new one that holds its state and nothing else: data of rewound
 * positions and of other commits is gone. Only cancel, progress, codec and timeout_ms are used;
 * keys and values are kept as they were. Whole or not at all, as a save. Sessions and snapshots of
 * the old file keep what they have.
 * Errors:
 *   NOT_FOUND, IO  a file operation failed
 *   CORRUPT        the file is damaged, or the root of its last commit is
 *   VERSION        a format version that this build does not have
 *   BUSY           a save of this file is running
 *   CANCELLED, STOPPED */
stasis_status stasis_snapshot_compact(const char *path, const stasis_save_options *options,
                                      stasis_error *error);

/* ---- Proof ---------------------------------------------------------------------------------- */
/* What stasis_snapshot_verify recomputes: the whole log, or an audit of some pages. */
typedef struct stasis_verify_options {
    uint32_t struct_size, chunk; /* as in stasis_run_options */
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* positions */
    void *progress_user;
    double audit_percent; /* share of the pages to recompute, up to 100; 0: the whole log */
    uint64_t audit_seed;  /* selects the pages; to be chosen after the file was made */
    uint32_t flags;       /* STASIS_VERIFY_STRICT or 0 */
    uint32_t reserved;    /* 0 */
    uint64_t timeout_ms;  /* as in stasis_save_options */
} stasis_verify_options;

#define STASIS_VERIFY_STRICT                                                                       \
    1u /* first check all checksums of the file up to its state, dead bytes and both root slots    \
          included: CORRUPT if one is wrong */

#define STASIS_KEYS 0u
#define STASIS_VALUES 1u
/* Outcome of a verification. An audit draws audit_drawn of audit_pages pages. A change in n pages
 * stays unnoticed with a probability of at most C(audit_pages - n, audit_drawn) / C(audit_pages,
 * audit_drawn). */
typedef struct stasis_verify_report {
    uint32_t struct_size;
    uint32_t verified;  /* 1: every compared bit was reproduced; position to part do not apply */
    uint64_t positions; /* recomputed */
    uint64_t position;  /* the first that differs; UINT64_MAX: none */
    uint32_t layer;     /* STASIS_NOWHERE: none */
    uint32_t element;   /* 1 .. 12 */
    char message[256];  /* zero-terminated */
    uint32_t head, part;             /* KV head, STASIS_KEYS or _VALUES; STASIS_NOWHERE: none */
    uint64_t drawn, drawn_otherwise; /* tokens drawn again; those that differed */
    uint64_t audit_pages, audit_drawn;
    uint64_t unreachable_begin, unreachable_end; /* positions that the audit cannot recompute */
    uint64_t sections; /* of the file, found right by STASIS_VERIFY_STRICT; else 0 */
    uint32_t older;    /* as of stasis_snapshot_info: what was saved last is not verified */
    uint32_t reserved; /* 0 */
} stasis_verify_report;

/* Fills the struct with defaults, as every _init function of stasis.h. */
void stasis_verify_options_init(stasis_verify_options *options, size_t size);
/* Recomputes everything from the token log and compares it with what is stored, drawn tokens
 * included. Neither the file nor any session changes; the recomputation takes KV pages of the
 * model. That the weights are those that the model's digest names is part of the proof if the model
 * was opened with verify_weights.
 *
 * An audit recomputes some pages instead, each from the keys and values stored before it: in
 * addition to the drawn pages always the last one, with hidden state and logits; the first page
 * needs nothing before it. An audit cannot reach positions for which local layers would need
 * released pages (with window_retain = capacity none is released), and in a file without keys and
 * values nothing but the first page.
 *
 * Errors:
 *   DIVERGED        something differs; the report is filled, as with OK
 *   MODEL_MISMATCH  another model's file
 *   VERSION         another contract version or profile
 *   UNSUPPORTED     the whole log of a state with positions_foreign; an audit begins there
 *   CORRUPT         STASIS_VERIFY_STRICT found a wrong checksum
 *   statuses of append */
stasis_status stasis_snapshot_verify(const stasis_snapshot *snapshot, stasis_model *model,
                                     const stasis_verify_options *options,
                                     stasis_verify_report *report, stasis_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif /* STASIS_SNAPSHOT_H */
