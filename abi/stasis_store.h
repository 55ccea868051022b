/* Stasis: stores of sessions, in which what they share is held once. Part of stasis.h, which states
 * the conventions; include that. */
#ifndef STASIS_STORE_H
#define STASIS_STORE_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A store keeps any number of sessions, each under a name, as STORE.md describes. Full pages that
 * sessions have in common are there once, however the sessions came about; a put writes what the
 * store lacks. Any number of processes, and of machines where the backend allows it, may use one
 * store at the same time, without a word to each other: a put replaces exactly the state that
 * its session was put to or got from last, or fails with CONFLICT, so that no turn is lost.
 *
 * A name is a zero-terminated text of 1 to 255 bytes of UTF-8. A name that is not, and a path that
 * is empty, is INVALID_ARGUMENT.
 *
 * All functions are thread-safe, but for close. Those that read may return CORRUPT: an object is
 * damaged or missing, and the message names it; all that touch the store may return IO: the backend
 * failed, and VERSION: a newer version of Stasis wrote it. After any failure all sessions are in
 * the store as they were; one failure is later: where a backend cannot say whether it has replaced
 * a root (a lost connection), a put that ended with IO may have been made. The same session may be
 * put again then, and knows its own put. A host that was ended before it heard the answer, and puts
 * the same conversation by another session object, gets CONFLICT: if `result.state` is the digest
 * of that session, what is there is its own put, or one of the same state, and nothing is lost; it
 * goes on with what it gets. Any other state is a stranger's turn. */
typedef struct stasis_store stasis_store;

#define STASIS_STORE_EXISTING 1u /* open no store that is not there: NOT_FOUND */

/* How a store is opened. */
typedef struct stasis_store_options {
    uint32_t struct_size, flags;
    uint64_t reserved; /* 0 */
} stasis_store_options;

void stasis_store_options_init(stasis_store_options *options, size_t size);
/* Opens the store that `uri` names, or makes one:
 *   dir:PATH     a directory: crash-safe as files are
 *   sqlite:PATH  one file of SQLite, and two beside it while it is used
 *   s3://BUCKET/PREFIX?endpoint=URL&region=NAME   object storage, by the module libstasis_s3; the
 *                environment has the credentials (STORE.md)
 * UNSUPPORTED: another scheme, the module of a scheme is not installed (stasis_module.h),
 * or the service is not up to it; the message names it. INVALID_ARGUMENT: no scheme; something else
 * is at the path. */
stasis_status stasis_store_open(const char *uri, const stasis_store_options *options,
                                stasis_store **store, stasis_error *error);
/* Closes it. Sessions that were got from it, and snapshots of it, stay as they are. */
void stasis_store_close(stasis_store *store);

/* Told of a key, its object's bytes, and the seconds since it was put, or put again. */
typedef int32_t (*stasis_store_key_fn)(void *user, const char *key, uint64_t bytes,
                                       uint64_t age_seconds);

/* A backend that the host brings: a table of keys and bytes. Keys have 1 to 512 characters of a-z,
 * A-Z, 0-9, '.', '-', '_' and '/'. Objects ("objects/...") are put once and never changed; roots
 * ("roots/...") are replaced. What a function has written when it returns must survive.
 *
 * All functions return STASIS_OK or a status that their comment names; any other ends the call with
 * IO, but CANCELLED and TIMEOUT, which end it as themselves. They run on any thread, several at
 * once, until the store is closed and nothing got from it is left; `user` is passed on unchanged.
 * They must not call functions of the store. */
typedef struct stasis_store_backend {
    uint32_t struct_size, reserved; /* 0 */
    void *user;
    /* Stores the object's size in `*size`. NOT_FOUND: there is none. */
    stasis_status (*size)(void *user, const char *key, uint64_t *size);
    /* Stores bytes of an object; with `length` 0 it asks whether there is one. NOT_FOUND: there is
     * none, or it ends before `offset + length`. */
    stasis_status (*read)(void *user, const char *key, uint64_t offset, void *data, size_t length);
    /* Puts an object if there is none of this key; if there is, its age begins anew. Nobody ever
     * sees a part of it. */
    stasis_status (*put)(void *user, const char *key, const void *data, size_t length);
    /* Stores a root's bytes, at most `capacity`, and in the 128 bytes of `mark` a zero-terminated
     * text, not empty, that no other bytes under this key have. `*length` becomes the number of
     * bytes that there are: if they are more than `capacity` nothing is stored. NOT_FOUND: there is
     * none. */
    stasis_status (*get_root)(void *user, const char *key, void *data, size_t capacity,
                              size_t *length, char *mark);
    /* Puts a root in place of the one that has the mark, or with NULL of none, at once or not at
     * all, and stores the new mark. With `data` NULL it is removed, and there is no new mark.
     * CONFLICT: another is there, or none. */
    stasis_status (*swap)(void *user, const char *key, const char *mark, const void *data,
                          size_t length, char *new_mark);
    /* Calls `visit` for each key that begins with the prefix, ascending, until it returns non-zero,
     * on the calling thread. `visit` may call the other functions. */
    stasis_status (*list)(void *user, const char *prefix, stasis_store_key_fn visit,
                          void *visit_user);
    /* Removes an object; it may be gone already. */
    stasis_status (*remove)(void *user, const char *key);
    /* NULL, or both: take and release a lock. With `collect` 0 it is shared by all writers; with 1
     * it is a collector's alone. Without locks, ages decide what a collection may remove. */
    stasis_status (*lock)(void *user, int32_t collect, void **lock);
    void (*unlock)(void *user, void *lock);
    void (*release)(void *user); /* called once, after the last use; may be NULL */
    /* Puts an object in place of what is under its key, which is damaged, at once or not at all: a
     * put that finds it so mends it for all sessions that have it. NULL: it is removed and put, and
     * what ends the call in between leaves none. */
    stasis_status (*replace)(void *user, const char *key, const void *data, size_t length);
} stasis_store_backend;

/* Opens a store over a host's backend; the struct is copied. `name` is for messages, and tells
 * backends apart: a session that was put to or got from a store knows it by its name. After a
 * failure `release` is not called. */
stasis_status stasis_store_open_backend(const stasis_store_backend *backend, const char *name,
                                        const stasis_store_options *options, stasis_store **store,
                                        stasis_error *error);

#define STASIS_STORE_OVERWRITE 1u   /* replace what is there, whatever it is */
#define STASIS_STORE_FULL_LOGITS 2u /* of put: as STASIS_SAVE_FULL_LOGITS */

/* How a call on a store runs. */
typedef struct stasis_store_call_options {
    uint32_t struct_size, flags;
    stasis_cancel *cancel;
    stasis_progress_fn progress; /* bytes; of collect objects that are removed */
    void *progress_user;
    uint32_t codec; /* of put: as in stasis_save_options */
    uint32_t keep;  /* of put: STASIS_KEEP_... */
    uint64_t timeout_ms;
    uint64_t grace_seconds; /* of collect: see there; 0: a day */
} stasis_store_call_options;

/* What a put or an import has done. */
typedef struct stasis_store_result {
    uint32_t struct_size, reserved;
    stasis_digest root;     /* root digest of what is stored now; after CONFLICT: of what is stored
                               instead, zero if nothing is */
    stasis_digest state;    /* digest of the session; after CONFLICT: of that which is stored */
    uint64_t sequence;      /* puts to this name */
    uint64_t bytes_written; /* by this call */
    uint64_t bytes_shared;  /* keys, values, recurrent states and data that this call was about to
                               write and that were there already */
} stasis_store_result;

void stasis_store_call_options_init(stasis_store_call_options *options, size_t size);

/* Stores a session under a name, whole or not at all. The session is unchanged. What is stored must
 * be what this session, or the one it was forked from, put to this name or got from it last; if it
 * did neither, nothing may be there. Otherwise CONFLICT: `result` says what is there. A session of
 * another model or with another beginning may follow as well. Under a new name it costs as much as
 * it has beyond the place in this store where it, or the one it was forked from, was put to or got
 * from last. `result` may be NULL.
 * Errors:
 *   CONFLICT          see above; the message names the newer root
 *   UNSUPPORTED       STASIS_KEEP_NONE of a session with positions_foreign
 *   INVALID_ARGUMENT  a newer version wrote it with features that this one would lose
 *   statuses of logits; CANCELLED, TIMEOUT, STOPPED */
stasis_status stasis_store_put(stasis_store *store, stasis_session *session, const char *name,
                               const stasis_store_call_options *options,
                               stasis_store_result *result, stasis_error *error);
struct stasis_load_options; /* of stasis_snapshot.h */
/* Creates a session that continues a stored one, as stasis_session_load does from a file: with its
 * options and statuses. If keys, values or recurrent states are damaged or missing in the store,
 * they are computed again, and must give the digests that the session was put with (DIVERGED), and
 * the session's next put to this name writes them again; STASIS_LOAD_NO_RECOMPUTE makes this
 * CORRUPT. NOT_FOUND: there is no such session. */
stasis_status stasis_store_get(stasis_store *store, stasis_model *model, const char *name,
                               const struct stasis_load_options *options,
                               stasis_session **session, stasis_error *error);
/* Opens a stored session for inspection, comparison and verification. Pages are read when they are
 * needed: after a put to this name and a collection, such reads may return CORRUPT. */
stasis_status stasis_store_snapshot(stasis_store *store, const char *name,
                                    const stasis_store_call_options *options,
                                    stasis_snapshot **snapshot, stasis_error *error);

/* A session in a list. */
typedef struct stasis_stored_session {
    uint32_t struct_size;
    uint32_t reserved;
    const char *name;   /* zero-terminated; of a damaged root its key */
    const char *damage; /* NULL, or why the root is damaged: then the fields below are 0 */
    stasis_digest root, state, model;
    uint64_t position; /* tokens in the log */
    uint64_t bytes;    /* that an export writes */
} stasis_stored_session;

typedef int32_t (*stasis_stored_session_fn)(void *user, const stasis_stored_session *session);
/* Calls `visit` for each session of the store, on the calling thread; its argument is valid until
 * it returns. A non-zero return ends the call with STOPPED. Sessions that come and go meanwhile may
 * be missed. */
stasis_status stasis_store_list(stasis_store *store, const stasis_store_call_options *options,
                                stasis_stored_session_fn visit, void *visit_user,
                                stasis_error *error);
/* Removes a name, also one whose root is damaged; collect removes what it alone referred to.
 * NOT_FOUND: there is none. CONFLICT: it was replaced meanwhile. */
stasis_status stasis_store_remove(stasis_store *store, const char *name,
                                  const stasis_store_call_options *options, stasis_error *error);
/* Gives a session a second name, under which it goes on by itself: some hundred bytes. NOT_FOUND;
 * CONFLICT: `to` is there, unless STASIS_STORE_OVERWRITE. */
stasis_status stasis_store_fork(stasis_store *store, const char *from, const char *to,
                                const stasis_store_call_options *options, stasis_error *error);

/* What a collection found and removed. */
typedef struct stasis_store_collected {
    uint32_t struct_size, reserved;
    uint64_t sessions;
    uint64_t objects, bytes; /* that there were */
    uint64_t removed_objects, removed_bytes;
} stasis_store_collected;

/* Removes what no session refers to: what was removed, rewound or replaced, and what interrupted
 * puts have left. Others may use the store meanwhile, and collect as well. A backend without locks
 * keeps what was put less than grace_seconds ago, which must be longer than any put takes.
 * CORRUPT: a root or a segment is damaged or missing; then nothing is removed. `collected` may be
 * NULL. */
stasis_status stasis_store_collect(stasis_store *store, const stasis_store_call_options *options,
                                   stasis_store_collected *collected, stasis_error *error);

/* Copies a snapshot file into the store, and a stored session into a new file: the same bytes, with
 * the history of the file's commits, so that nothing is computed and no model is needed. Statuses
 * of stasis_snapshot_open and stasis_session_save; CONFLICT: the name is there, and
 * INVALID_ARGUMENT: something is at the path, unless STASIS_STORE_OVERWRITE. `result` may be
 * NULL. */
stasis_status stasis_store_import(stasis_store *store, const char *path, const char *name,
                                  const stasis_store_call_options *options,
                                  stasis_store_result *result, stasis_error *error);
stasis_status stasis_store_export(stasis_store *store, const char *name, const char *path,
                                  const stasis_store_call_options *options, stasis_error *error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif /* STASIS_STORE_H */
