/* Stasis: the trace of a session's KV cache. Part of stasis.h, which states the conventions;
 * include that. */
#ifndef STASIS_TRACE_H
#define STASIS_TRACE_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* What happens to a session's keys and values, as it happens. They lie in pages of page_positions
 * positions (stasis_model_info); the layers of one window are a group, numbered from 0 by rising
 * window, those that see everything (window 0) first; a page holds its positions for all layers of
 * its group. For each group a session has a table of pages, by position.
 *
 * Pages: who starts with none and applies these events in their order has, whenever no call is
 * running, exactly the session's table: their number is pages_own + pages_shared of
 * stasis_session_info, and their bytes kv_bytes. */
#define STASIS_TRACE_HELD 1u     /* had already: when the trace begins, or again when an append is
                                    undone before which it had this page */
#define STASIS_TRACE_TAKEN 2u    /* a page of its own: empty, or read by a load */
#define STASIS_TRACE_SHARED 3u   /* a known page, which holds what these tokens give: others have
                                    it, or the model's cache kept it; it needs no computing, or
                                    takes the place of one that was computed at the same time */
#define STASIS_TRACE_COPIED 4u   /* before a write: the session's own copy in the place of a page
                                    that others have as well */
#define STASIS_TRACE_FILLED 5u   /* a page it had: all positions computed, digest known */
#define STASIS_TRACE_RELEASED 6u /* it has the page no more. Another may follow in its place */
#define STASIS_TRACE_READ 7u     /* with STASIS_TRACE_READS: a pass of the model is about to read
                                    pages in a row, of which it sees [begin, end) */
/* Operations, of the session as a whole: told when they are done, behind their pages. */
#define STASIS_TRACE_APPEND 8u  /* [begin, end) are in the log now; by decode and generate too */
#define STASIS_TRACE_UNDONE 9u  /* an append of [begin, end), or a pass over tokens that a drafter
                                   proposed, failed or was cancelled: the log is as it was, the
                                   pages are as just told, and one that holds `begin` is not full */
#define STASIS_TRACE_REWIND 10u /* [begin, end) are gone; a page that holds `begin` is not full */
#define STASIS_TRACE_EVICT 11u  /* no later token sees [begin, end), the range that was asked for */
#define STASIS_TRACE_FORK 12u   /* there is a second session with the same [begin, end) */
#define STASIS_TRACE_SAVE 13u   /* a file or stream holds [begin, end); with the state's digest */
#define STASIS_TRACE_LOAD 14u   /* so it came from one; with the state's digest */

#define STASIS_TRACE_ALL_GROUPS UINT32_MAX
typedef struct stasis_trace_event {
    uint32_t struct_size, kind; /* STASIS_TRACE_... */
    uint32_t group;             /* STASIS_TRACE_ALL_GROUPS: an operation */
    uint32_t window;            /* of the group's layers, as in layer_windows of the model's info */
    uint64_t begin, end;        /* positions; of a page all that it has room for */
    uint64_t bytes;       /* of the pages; of an operation what its positions take in all layers */
    stasis_digest digest; /* of a full page: SHA-256 over its place and its keys and values, the
                             same in every session that has the same there; else zero, but for
                             SAVE and LOAD */
} stasis_trace_event;

/* The event lives until the callback returns. It cannot end a call. */
typedef void (*stasis_trace_fn)(void *user, const stasis_trace_event *event);

#define STASIS_TRACE_READS 1u /* tell of reads too: one event or more for each pass and group */
#define STASIS_TRACE_QUEUE_MAX 16777216u
typedef struct stasis_trace_options {
    uint32_t struct_size, flags;
    stasis_trace_fn callback; /* NULL: events wait for stasis_session_take_trace */
    void *user;
    void (*release)(void *user); /* may be NULL; called once with `user`, when the trace ends */
    uint64_t queue_events; /* without a callback: how many can wait, up to STASIS_TRACE_QUEUE_MAX;
                              their memory is taken at once. With one: 0 */
} stasis_trace_options;

void stasis_trace_options_init(stasis_trace_options *options, size_t size);
/* Tells the callback of everything that happens to the session's KV cache from now on, first of the
 * pages that it has; NULL: nobody, at no cost but a branch now and then. Takes the place of an
 * earlier trace, which ends, as one does when its session is freed; an end tells nothing of pages.
 * After a failure the earlier trace goes on, and `release` is not called.
 *
 * The callback runs on the thread that called, inside the call (of a step: inside
 * stasis_sessions_step; `release`: in stasis_session_set_trace or stasis_session_free), and gets
 * BUSY from the session. An append tells of its pages pass by pass; if it fails in the end, of how
 * they go, and UNDONE. Rewinds, evictions, saves and loads tell of what came about, and nothing if
 * they fail: a rewind that computes again releases the pages that others took the place of, TAKEN,
 * or SHARED if other sessions have them too. What a call does beside the session's table is not
 * told, but for its reads: the last token, run again after a rewind; a score; a computing of
 * attention sums; a drafter's own cache.
 * A fork is not traced, nor does its parent's trace tell what becomes of it. Results do not depend
 * on a trace. With one, each call looks through the session's tables a few times for each pass. */
stasis_status stasis_session_set_trace(stasis_session *session, const stasis_trace_options *options,
                                       stasis_error *error);

/* Takes the events that wait, oldest first, at most `capacity`, into `events`, which lie `stride` =
 * sizeof(stasis_trace_event) bytes apart; *count is how many. One that finds no room to wait is
 * lost, and so is every later one until all that wait have been taken: *lost (may be NULL) is how
 * many followed the last of `events`, and 0 unless this call took the last. NOT_FOUND without a
 * trace whose events wait; BUSY. */
stasis_status stasis_session_take_trace(stasis_session *session, stasis_trace_event *events,
                                        size_t stride, size_t capacity, size_t *count,
                                        uint64_t *lost, stasis_error *error);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif /* STASIS_TRACE_H */
