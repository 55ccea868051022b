/* Stasis: a scheduler, which generates for many sessions at once. Part of stasis.h, which states
 * the conventions; include that.
 *
 * Calls of stasis_session_generate on many threads have the throughput of one: each reads all
 * weights for its own token. A scheduler computes all its sessions together, one token of each in a
 * pass over the weights, and appends their prompts in slices beside them. Sessions come and go at
 * any time. Each gets the bits that it gets alone, whatever else runs: tokens, texts, stops,
 * log-probabilities, log, cache and digest are those of stasis_session_append (or _append_message)
 * and stasis_session_generate.
 *
 *     stasis_scheduler_submit(scheduler, session, &options, &prompt, &error);    for each session
 *     while (sessions > 0 && stasis_scheduler_next(scheduler, NULL, STASIS_FOREVER, &event, &error)
 *                                == STASIS_OK) {
 *         fwrite(event->text, 1, event->length, file_of(event->session));
 *         sessions -= event->end;
 *         stasis_scheduler_event_free(event);
 *     }
 *
 * Who computes. A scheduler has no thread of its own. Threads that wait in stasis_scheduler_next
 * compute: one of them runs a pass (with the model's threads), the others wait for its events, and
 * when it leaves with one another goes on. While no thread is in next, nothing is computed.
 *
 * Turns. A pass computes one token for each of up to sessions_max sessions; if more generate, they
 * take turns, so each waits for at most (their number / sessions_max, rounded up) passes. Prompts
 * take turns too and share the positions that a pass has for them, so that a long one does not keep
 * short ones waiting. What prompts add to a pass, and so to the time that a reply waits for its
 * next token, is bounded by stall_ms: their slices are sized by the measured speed, and have at
 * least 16 positions together. (Parts of a device profile are as long as it makes them.) A prompt
 * that begins with pages which another session of its domain computes at present waits for these,
 * and takes them.
 *
 * Memory. Events wait until they are fetched. A session with events_max of them does not go on
 * until one is, and the others do. KV pages are taken as a session grows: one that finds none ends
 * with POOL_EXHAUSTED and keeps what it has, and may be submitted again. One whose prompt takes
 * several passes holds its last partial page twice meanwhile.
 *
 * Sessions in a scheduler. From submit until its end was fetched, a session returns BUSY for all
 * calls that would change it, as with stasis_generation_begin. Calls that read it are answered for
 * the position after the last token that has an event (stasis_generate.h, "Settled sessions"): they
 * wait for the pass in which it takes part, and a session that is being read misses one. While the
 * slices of its prompt are computed, that is the position before the prompt, which enters the log
 * as a whole. Its trace is called on the thread that computes. Its drafter is not asked: a pass is
 * full of other sessions' tokens.
 *
 * Freeing. A session may be freed while it is in a scheduler: that waits for the pass in which it
 * is, and drops its events. The model may be closed before. A scheduler that is closed lets go of
 * its sessions: each is then as if it had been cancelled. */
#ifndef STASIS_SCHEDULER_H
#define STASIS_SCHEDULER_H
#include "stasis.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct stasis_scheduler stasis_scheduler; /* thread-safe */
struct stasis_generate_options;                   /* of stasis_generate.h */

#define STASIS_FOREVER UINT64_MAX /* a timeout that does not end */

/* A struct of zeros is all defaults. None of them influences results. */
typedef struct stasis_scheduler_options {
    uint32_t struct_size;
    uint32_t sessions_max; /* that draw a token in a pass, and prompts begun; 0: 64; at most 1024 */
    uint32_t stall_ms;     /* what prompts may add to a pass, in milliseconds; 0: 100 */
    uint32_t slice;        /* positions of prompts in a pass; 0: by stall_ms; at most 1024 */
    uint64_t events_max;   /* events of a session that wait; 0: 16 */
} stasis_scheduler_options;

/* What a session appends before it generates: tokens, a turn, or a conversation; all 0: nothing. */
typedef struct stasis_prompt {
    uint32_t struct_size, reserved;
    const stasis_token *tokens; /* as stasis_session_append */
    size_t token_count;
    const char *role; /* as stasis_session_append_message with STASIS_MESSAGE_REPLY; NULL: none */
    const char *text;
    size_t length;
    /* As stasis_session_append_chat with STASIS_CHAT_REPLY; NULL: none. */
    const char *conversation;
    size_t conversation_length;
} stasis_prompt;

/* A token of a session, or its end. Pointers are into the event. */
typedef struct stasis_scheduler_event {
    uint32_t struct_size; /* the library's: fields after it are not there */
    uint32_t end;         /* 1: the session's last event; `text` is what was held back */
    stasis_session *session;
    void *user;           /* callback_user of the options */
    uint64_t pass;        /* the scheduler's pass that made it, counted from 1 */
    uint64_t position;    /* of the token; with `end` of the last one */
    stasis_token token;   /* with `end` the last one; 0 if there was none */
    float log_probability; /* as in stasis_generated, as are the fields of that name below */
    const char *text;
    size_t length;
    const stasis_token *best_tokens;
    const float *best_log_probabilities;
    uint32_t log_probability_count;
    uint32_t stop_reason; /* with `end`: STASIS_STOP_...; CALLBACK where an error ended it */
    uint64_t begin;       /* with `end`: the position of the first new token ... */
    uint64_t count;       /* ... and the number of them */
    /* With `end`: OK, CANCELLED, or the error that ended this session alone: a status of append or
     * decode. Without a new token the prompt is not in the log either, unless the log shows it: an
     * error or a cancel during the prompt undoes all of it. */
    stasis_status status;
    uint32_t reserved;
    const char *message; /* with `end`: of the error, zero-terminated; "" without one */
} stasis_scheduler_event;

/* What a scheduler has done. */
typedef struct stasis_scheduler_stats {
    uint32_t struct_size, reserved;
    uint64_t sessions;         /* submitted, and their end not fetched */
    uint64_t events;           /* that wait */
    uint64_t passes;           /* since the scheduler was created, as all below */
    uint64_t tokens;           /* drawn */
    uint64_t prompt_positions; /* of prompts, computed or taken from the prefix cache */
    uint64_t most_together;    /* sessions in a pass */
    uint64_t slice;            /* positions that the next pass has for prompts */
    uint64_t pass_us_max;      /* the longest pass, in microseconds */
} stasis_scheduler_stats;

/* Fill structs with defaults, as every _init function of stasis.h. */
void stasis_scheduler_options_init(stasis_scheduler_options *options, size_t size);
void stasis_prompt_init(stasis_prompt *prompt, size_t size);

/* Creates a scheduler for sessions of a model. INVALID_ARGUMENT: an option out of range. */
stasis_status stasis_scheduler_create(stasis_model *model, const stasis_scheduler_options *options,
                                      stasis_scheduler **scheduler, stasis_error *error);
/* Submits a session: it appends the prompt (NULL: nothing) and generates. Computes nothing yet. Of
 * the options, callback must be NULL; callback_user comes with each event; the cancel handle is
 * looked at between passes, and may be released at any time. A session whose end was fetched may be
 * submitted again. A conversation is laid out before this returns, which takes long for thousands
 * of messages with some templates: the cancel handle and timeout_ms end it.
 * Errors:
 *   INVALID_ARGUMENT, NOT_FOUND, UNSUPPORTED  as stasis_session_generate, and as the append of the
 *                                             prompt; a session of another model
 *   CONFLICT   the log differs from the prompt's conversation, or has more; see
 *              stasis_session_chat_tokens
 *   FULL       the prompt exceeds the session's capacity
 *   BUSY       the session is in a scheduler, or in a call, or a generation of it is not over
 *   CANCELLED  the scheduler was stopped, or the laying out of the conversation
 *   TIMEOUT    the same */
stasis_status stasis_scheduler_submit(stasis_scheduler *scheduler, stasis_session *session,
                                      const struct stasis_generate_options *options,
                                      const stasis_prompt *prompt, stasis_error *error);
/* Waits for an event of a session (NULL: of any, taking turns), computing meanwhile, and returns
 * it: the caller releases it. After `timeout_ms` without one it is NULL, and the status OK; a pass
 * that has begun is finished before. A timeout of 0 computes nothing. Several threads may call.
 *
 * After NO_MEMORY, DEVICE, or another error of a whole pass, all sessions are as they were before
 * it, or before their prompt, and the next call tries again. An error of one session is no error of
 * this call, but comes with that session's end.
 * Errors:
 *   NOT_FOUND  `session` is not in this scheduler, or was freed meanwhile
 *   CANCELLED  the scheduler was stopped
 *   BUSY       called by a callback (a trace, an allocator) of a pass of this scheduler */
stasis_status stasis_scheduler_next(stasis_scheduler *scheduler, const stasis_session *session,
                                    uint64_t timeout_ms, stasis_scheduler_event **event,
                                    stasis_error *error);
void stasis_scheduler_event_free(stasis_scheduler_event *event);
/* Ends a session: its last event has the status CANCELLED, and comes after those that wait. During
 * its prompt the session is as before submit, else it keeps the tokens drawn. Does not wait. After
 * the session's end it has no effect. NOT_FOUND: the session is not in this scheduler. */
stasis_status stasis_scheduler_cancel(stasis_scheduler *scheduler, const stasis_session *session,
                                      stasis_error *error);
/* Reports at this moment. */
stasis_status stasis_scheduler_get_stats(const stasis_scheduler *scheduler,
                                         stasis_scheduler_stats *stats, stasis_error *error);
/* Ends all work for good, at any time and from any thread: waits for the pass that runs, lets go of
 * all sessions and drops their events. Threads in next, and every later call, return CANCELLED.
 * (Called by a callback of a pass, it does not wait for that pass.) Ignores NULL. */
void stasis_scheduler_stop(stasis_scheduler *scheduler);
/* Stops and releases the scheduler. Threads that are in next return CANCELLED; no other call may
 * run meanwhile or follow, so hosts with such threads stop it first and wait for them. */
void stasis_scheduler_close(stasis_scheduler *scheduler);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif /* STASIS_SCHEDULER_H */
