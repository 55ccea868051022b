/* Stasis: the trace of a session's KV cache. Part of stasis.h, which states the conventions;
 * include that. */
#ifndef STASIS_TRACE_H
#define STASIS_TRACE_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* A trace reports every change to a session's keys and values when it happens. Keys and values are
 * stored in pages of page_positions positions (stasis_model_info). The layers with the same window
 * are a group; groups are numbered from 0 by rising window, the one that sees everything (window 0)
 * first. A page holds its positions for all layers of its group. For each group a session has a
 * table of pages, by position.
 *
 * Events of pages: applied in their order to empty tables, they give the session's tables whenever
 * no call is running: their pages are pages_own + pages_shared of stasis_session_info, and their
 * bytes kv_bytes. */
#define STASIS_TRACE_HELD 1u     /* the session has the page already: when the trace begins, or when
                                    an append is undone before which it had this page */
#define STASIS_TRACE_TAKEN 2u    /* a page of its own: empty, or read by a load */
#define STASIS_TRACE_SHARED 3u   /* a page that holds what these tokens give and that other sessions
                                    or the prefix cache hold; it needs no computing, or replaces
                                    one that was computed at the same time */
#define STASIS_TRACE_COPIED 4u   /* before a write: the session's own copy replaces a page that
                                    others hold as well */
#define STASIS_TRACE_FILLED 5u   /* a page it had: all positions computed, digest available */
#define STASIS_TRACE_RELEASED 6u /* it no longer has the page. Another may follow in its place */
#define STASIS_TRACE_READ 7u     /* with STASIS_TRACE_READS: a pass of the model is about to read
                                    consecutive pages, of which it sees [begin, end) */
/* Operations, of the session as a whole: reported when they are done, after their pages. */
#define STASIS_TRACE_APPEND 8u  /* [begin, end) are in the log now; by decode and generate too */
#define STASIS_TRACE_UNDONE 9u  /* an append of [begin, end), or a pass over tokens that a drafter
                                   proposed, failed or was cancelled: the log is as before, the
                                   pages are as just reported, and one that holds `begin` is not
                                   full */
#define STASIS_TRACE_REWIND 10u /* [begin, end) are gone; a page that holds `begin` is not full */
#define STASIS_TRACE_EVICT 11u  /* no later token sees [begin, end), the range that was asked for */
#define STASIS_TRACE_FORK 12u   /* there is a second session with the same [begin, end) */
#define STASIS_TRACE_SAVE 13u   /* a file or stream holds [begin, end); with the state's digest */
#define STASIS_TRACE_LOAD 14u   /* [begin, end) came from one; with the state's digest */

#define STASIS_TRACE_ALL_GROUPS UINT32_MAX
/* An event. Fields that do not apply to its kind are 0. */
typedef struct stasis_trace_event {
    uint32_t struct_size, kind; /* STASIS_TRACE_... */
    uint32_t group;             /* STASIS_TRACE_ALL_GROUPS: an operation */
    uint32_t window;            /* of the group's layers, as in layer_windows of the model's info */
    uint64_t begin, end;        /* positions; of a page, all that it can hold */
    uint64_t bytes;       /* of the pages; of an operation, of its positions in all layers */
    stasis_digest digest; /* of a full page: SHA-256 over its group, its place and its keys and
                             values, the same in every session that has the same there; of SAVE
                             and LOAD the state's; else zero */
} stasis_trace_event;

/* Called with each event, which is valid until it returns. A callback cannot end the call. */
typedef void (*stasis_trace_fn)(void *user, const stasis_trace_event *event);

#define STASIS_TRACE_READS 1u /* report reads too: one event or more for each pass and group */
#define STASIS_TRACE_QUEUE_MAX 16777216u
/* Events that a trace reports, and their receiver: a callback, or a queue that the host empties. */
typedef struct stasis_trace_options {
    uint32_t struct_size, flags;
    stasis_trace_fn callback; /* NULL: events wait for stasis_session_take_trace */
    void *user;
    void (*release)(void *user); /* may be NULL; called once with `user`, when the trace ends */
    uint64_t queue_events; /* without a callback: most events that can wait, up to
                              STASIS_TRACE_QUEUE_MAX; their memory is taken at once. With a
                              callback: 0 */
} stasis_trace_options;

/* Fills the struct with defaults, as every _init function of stasis.h. */
void stasis_trace_options_init(stasis_trace_options *options, size_t size);
/* Starts a trace: the callback is called with everything that happens to the session's KV cache
 * from now on, beginning with the pages that it has. With NULL there is no trace, at no cost but an
 * occasional branch. The new trace replaces an earlier one, which ends; a trace also ends when its
 * session is freed. The end reports no pages. On failure the earlier trace continues, and `release`
 * is not called.
 *
 * The callback runs on the calling thread, inside the call (of a step: inside stasis_sessions_step;
 * `release`: in stasis_session_set_trace or stasis_session_free), and gets BUSY from the session.
 *
 * An append reports its pages pass by pass; if it fails in the end, it reports how they are
 * released, and UNDONE. Rewinds, evictions, saves and loads report the outcome, and nothing if they
 * fail; a rewind that computes again releases the pages that are replaced by others, TAKEN, or
 * SHARED if other sessions have them too. Work outside the session's tables is not reported, except
 * for its reads: the last token, computed again after a rewind; a score; the recomputation of
 * attention sums; a drafter's own cache.
 *
 * A fork is not traced, nor does its parent's trace report what happens to it. Results do not
 * depend on a trace. With one, each call searches the session's tables a few times a pass.
 *
 * INVALID_ARGUMENT: both a callback and queue_events, neither, or more than
 * STASIS_TRACE_QUEUE_MAX. */
stasis_status stasis_session_set_trace(stasis_session *session, const stasis_trace_options *options,
                                       stasis_error *error);

/* Removes waiting events, oldest first and at most `capacity`, and stores them in `events`,
 * `stride` bytes apart, which is sizeof(stasis_trace_event); *count is set to their number. When
 * the queue is full, the next event is lost, and so is every later one until all that wait have
 * been taken: *lost (may be NULL) is the number of events lost after the last of `events`, and 0
 * unless this call took the last one. NOT_FOUND: the session has no trace, or one with a
 * callback. */
stasis_status stasis_session_take_trace(stasis_session *session, stasis_trace_event *events,
                                        size_t stride, size_t capacity, size_t *count,
                                        uint64_t *lost, stasis_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif /* STASIS_TRACE_H */
